//! Owns what a lock in git costs, beside the git commands that nobody can do without, and beside the real grite.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::Setup;
use crate::report::{Aim, Section, Table, Unit, median, progress};

/// One command is over in milliseconds, so it is run often.
const RUNS_PER_TURN: usize = 8;
/// The locks of a large repository.
const MANY: u64 = 10_000;

pub fn run(setup: &Setup) -> Result<Section> {
    let scratch = setup.directory("git")?;
    let bench = Bench { setup, tenure: setup.tenure.clone(), grite: grite(), scratch };
    let mut section = Section { title: "Locks in git", ..Section::default() };
    section.notes.push(
        "Whole commands as a person or a script runs them, process start included; medians in milliseconds.".to_owned(),
    );
    if bench.grite.is_none() {
        section.notes.push("No grite beside it: `TENURE_TEST_GRITE` names none.".to_owned());
    }
    bench.alone(&mut section)?;
    bench.with_remote(&mut section, "path", None)?;
    let daemon = Daemon::start(&bench.scratch)?;
    bench.with_remote(&mut section, "daemon", Some(&daemon))?;
    bench.many(&mut section)?;
    Ok(section)
}

/// The real program where `cargo xtask test` puts it, or as named.
fn grite() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    let default = cache.join("tenure-test-tools/grite-0.5.3/bin/grite");
    std::env::var_os("TENURE_TEST_GRITE").map(PathBuf::from).or(Some(default)).filter(|program| program.is_file())
}

struct Bench<'a> {
    setup: &'a Setup,
    tenure: PathBuf,
    grite: Option<PathBuf>,
    scratch: PathBuf,
}

/// What is timed, in the order of one turn.
struct Timed<'a> {
    name: &'static str,
    act: Box<dyn Fn(usize) -> Result<()> + 'a>,
    ms: Vec<f64>,
}

impl<'a> Timed<'a> {
    fn new(name: &'static str, act: impl Fn(usize) -> Result<()> + 'a) -> Timed<'a> {
        Timed { name, act: Box::new(act), ms: Vec::new() }
    }

    fn median(&self) -> f64 {
        median(self.ms.iter().copied())
    }
}

impl Bench<'_> {
    /// All acts in turns, so that the machine's moods fall on all of them.
    fn measure(&self, timed: &mut [Timed<'_>]) -> Result<()> {
        for run in 0..self.setup.turns * RUNS_PER_TURN {
            for one in &mut *timed {
                let started = Instant::now();
                (one.act)(run).with_context(|| one.name.to_owned())?;
                one.ms.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        timed.iter().for_each(|one| progress(format!("git: {}: {:.1} ms", one.name, one.median())));
        Ok(())
    }

    fn lock(&self, dir: &Path, words: &[&str]) -> Result<()> {
        done(Command::new(&self.tenure).arg("lock").args(words).current_dir(dir))
    }

    fn other(&self, dir: &Path, words: &[&str]) -> Result<()> {
        match &self.grite {
            Some(grite) => done(Command::new(grite).arg("lock").args(words).current_dir(dir)),
            None => Ok(()),
        }
    }

    fn alone(&self, section: &mut Section) -> Result<()> {
        let dir = self.repository("alone", None)?;
        let theirs = self.repository("alone-grite", None)?;
        let commit = one_commit(&dir)?;
        self.lock(&dir, &["acquire", "path:warm"])?;
        self.other(&theirs, &["acquire", "path:warm"])?;
        let mut timed = [
            Timed::new("git update-ref", |run| git(&dir, &["update-ref", &format!("refs/floor/{run}"), &commit, ZERO])),
            Timed::new("tenure acquire", |run| self.lock(&dir, &["acquire", &format!("path:a{run}")])),
            Timed::new("tenure renew", |run| self.lock(&dir, &["renew", &format!("path:a{run}")])),
            Timed::new("tenure release", |run| self.lock(&dir, &["release", &format!("path:a{run}")])),
            Timed::new("grite acquire", |run| self.other(&theirs, &["acquire", &format!("path:a{run}")])),
            Timed::new("grite renew", |run| self.other(&theirs, &["renew", &format!("path:a{run}")])),
            Timed::new("grite release", |run| self.other(&theirs, &["release", &format!("path:a{run}")])),
        ];
        self.measure(&mut timed)?;
        report(section, "without a remote", &timed, 2.5);
        let [_, own @ .., _, _, _] = &timed;
        if self.grite.is_some() {
            for (own, theirs) in own.iter().zip(timed.iter().skip(4)) {
                let what = format!("{} / {}", own.name, theirs.name);
                section.aims.push(Aim::at_most(what, own.median() / theirs.median(), Unit::Times, 1.0));
            }
        }
        Ok(())
    }

    fn with_remote(&self, section: &mut Section, name: &'static str, daemon: Option<&Daemon>) -> Result<()> {
        let remote = self.scratch.join(format!("{name}.git"));
        done(Command::new("git").args(["init", "-q", "--bare"]).arg(&remote))?;
        let url = daemon.map_or_else(|| remote.display().to_string(), |daemon| daemon.url(&format!("{name}.git")));
        let dir = self.repository(name, Some(&url))?;
        self.lock(&dir, &["acquire", "path:warm"])?;
        let push = |run: usize| {
            let lease = format!("--force-with-lease=refs/floor/{run}:");
            git(&dir, &["push", "-q", &lease, "origin", &format!("refs/floor/{run}:refs/floor/{run}")])
        };
        // What is pushed has the size of a lock: three objects that the remote has not seen.
        for run in 0..self.setup.turns * RUNS_PER_TURN {
            std::fs::write(dir.join("lock.json"), format!("{run} {}", "x".repeat(150)))?;
            git(&dir, &["add", "lock.json"])?;
            git(&dir, &["commit", "-q", "--amend", "--allow-empty", "-m", &run.to_string()])?;
            git(&dir, &["update-ref", &format!("refs/floor/{run}"), "HEAD"])?;
        }
        let mut timed = [
            Timed::new("git push --force-with-lease", push),
            Timed::new("tenure acquire", |run| self.lock(&dir, &["acquire", &format!("path:a{run}")])),
            Timed::new("tenure renew", |run| self.lock(&dir, &["renew", &format!("path:a{run}")])),
            Timed::new("tenure release", |run| self.lock(&dir, &["release", &format!("path:a{run}")])),
        ];
        self.measure(&mut timed)?;
        report(section, if daemon.is_some() { "remote behind git daemon" } else { "remote on a path" }, &timed, 1.3);
        Ok(())
    }

    fn many(&self, section: &mut Section) -> Result<()> {
        let count = self.setup.scaled(MANY);
        let dir = self.repository("many", None)?;
        fill(&dir, count)?;
        let floor = |_| {
            let list = "git for-each-ref --format='%(objectname):lock.json' refs/grite/locks | git cat-file --batch >/dev/null";
            done(Command::new("sh").args(["-c", list]).current_dir(&dir))
        };
        let mut timed = [
            Timed::new("git for-each-ref | git cat-file --batch", floor),
            Timed::new("tenure status", |_| self.lock(&dir, &["status", "--json"])),
        ];
        self.measure(&mut timed)?;
        report(section, &format!("{count} locks"), &timed, 1.3);
        let objects = |dir: &Path| Command::new("git").arg("count-objects").current_dir(dir).output();
        let held = Command::new(&self.tenure).args(["lock", "acquire", "path:0"]).current_dir(&dir).output()?;
        ensure!(held.status.code() == Some(4), "a lock of somebody else was not refused");
        let before = objects(&dir)?.stdout;
        Command::new(&self.tenure).args(["lock", "acquire", "path:0"]).current_dir(&dir).output()?;
        ensure!(objects(&dir)?.stdout == before, "a refused acquire wrote objects");
        Ok(())
    }

    fn repository(&self, name: &str, remote: Option<&str>) -> Result<PathBuf> {
        let dir = self.scratch.join(name);
        done(Command::new("git").args(["init", "-q"]).arg(&dir))?;
        git(&dir, &["config", "user.name", "bench"])?;
        git(&dir, &["config", "user.email", "bench@example.com"])?;
        git(&dir, &["commit", "-q", "--allow-empty", "-m", "first"])?;
        if let Some(url) = remote {
            git(&dir, &["remote", "add", "origin", url])?;
        }
        Ok(dir)
    }
}

const ZERO: &str = "0000000000000000000000000000000000000000";

fn report(section: &mut Section, place: &str, timed: &[Timed<'_>], factor: f64) {
    let mut table = Table::new(&[place, "ms"]);
    for one in timed.iter().filter(|one| one.median() > 0.2) {
        table.row(&[&one.name, &format!("{:.1}", one.median())]);
    }
    section.tables.push(table);
    let Some(floor) = timed.first() else { return };
    for one in timed.iter().skip(1).filter(|one| one.name.starts_with("tenure")) {
        let what = format!("{place}: {} / {}", one.name, floor.name);
        section.aims.push(Aim::at_most(what, one.median() / floor.median(), Unit::Times, factor));
    }
}

fn one_commit(dir: &Path) -> Result<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(dir).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Locks of somebody else, as many as asked for, in one stream.
fn fill(dir: &Path, count: u64) -> Result<()> {
    let mut import =
        Command::new("git").args(["fast-import", "--quiet"]).current_dir(dir).stdin(Stdio::piped()).spawn()?;
    let mut stream = std::io::BufWriter::new(import.stdin.take().context("a stream")?);
    for number in 0..count {
        let lock = format!(
            "{{\n  \"owner\": \"{number:032x}\",\n  \"nonce\": \"n\",\n  \"expires_unix_ms\": 99999999999999,\n  \"resource\": \"path:{number}\"\n}}"
        );
        write!(
            stream,
            "commit refs/grite/locks/{number:016x}\ncommitter b <b@example.com> 1 +0000\ndata 6\nLock: \nM 100644 inline lock.json\ndata {}\n{lock}\n\n",
            lock.len()
        )?;
    }
    drop(stream.into_inner()?);
    ensure!(import.wait()?.success(), "git fast-import failed");
    Ok(())
}

fn git(dir: &Path, words: &[&str]) -> Result<()> {
    done(Command::new("git").args(words).current_dir(dir))
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} {:?} failed: {said}", command.get_program(), command.get_args());
    Ok(())
}

/// `git daemon` on loopback: one process for each connection, as inetd runs it, so that none is left behind.
struct Daemon {
    port: u16,
}

impl Daemon {
    fn start(base: &Path) -> Result<Daemon> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let base = base.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that cannot be served is closed, and the measurement fails.
                let Ok(said) = stream.try_clone() else { continue };
                let mut command = Command::new("git");
                command.args(["daemon", "--inetd", "--log-destination=none", "--export-all", "--enable=receive-pack"]);
                command.arg(format!("--base-path={}", base.display())).arg(&base);
                command.stdin(OwnedFd::from(stream)).stdout(OwnedFd::from(said)).stderr(Stdio::null());
                let Ok(mut child) = command.spawn() else { continue };
                std::thread::spawn(move || child.wait());
            }
        });
        Ok(Daemon { port })
    }

    fn url(&self, name: &str) -> String {
        format!("git://127.0.0.1:{}/{name}", self.port)
    }
}
