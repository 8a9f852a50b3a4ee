//! Clones around one bare remote, and a clock that only the test moves.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tenure_core::{Timestamp, Ttl};
use tenure_git::{Ask, Error, Granted, LockName, Locks, Mode, Repo};

pub(crate) const MINUTE: u64 = 60_000;

/// A clock that only the test moves.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn new() -> TestClock {
        TestClock(Arc::new(AtomicU64::new(1_794_768_278_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// A folder with a bare remote and its clones.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) clock: TestClock,
    url: String,
}

/// One agent in one clone.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) repo: Repo,
    pub(crate) name: String,
    pub(crate) clock: TestClock,
    pub(crate) mode: Mode,
}

impl World {
    /// With a remote on a path.
    pub(crate) fn on_path() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let remote = dir.path().join("remote.git");
        git(dir.path(), &["init", "-q", "--bare", "remote.git"]);
        World { url: remote.display().to_string(), dir, clock: TestClock::new() }
    }

    /// With a remote behind `git daemon`.
    pub(crate) fn on_daemon() -> World {
        let mut world = World::on_path();
        let daemon = Daemon::start(world.dir.path());
        world.url = format!("git://127.0.0.1:{}/remote.git", daemon.port);
        world
    }

    pub(crate) fn remote(&self) -> PathBuf {
        self.dir.path().join("remote.git")
    }

    /// A new clone with one agent in it.
    pub(crate) fn clone_for(&self, agent: &str) -> Agent {
        let dir = self.dir.path().join(agent);
        git(self.dir.path(), &["clone", "-q", &self.url, agent]);
        self.agent_in(&dir, agent)
    }

    /// Another agent in an existing repository.
    pub(crate) fn agent_in(&self, dir: &Path, agent: &str) -> Agent {
        let repo = Repo::discover(dir).expect("a repository");
        Agent { repo, name: agent.to_owned(), clock: self.clock.clone(), mode: Mode::Auto }
    }

    /// An agent in a repository without a remote.
    pub(crate) fn alone(&self, agent: &str) -> Agent {
        let dir = self.dir.path().join("alone");
        if !dir.exists() {
            git(self.dir.path(), &["init", "-q", "alone"]);
        }
        self.agent_in(&dir, agent)
    }
}

impl Agent {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Locks<'_>) -> T) -> T {
        let clock = || self.clock.now();
        act(&Locks::open(&self.repo, &self.mode, self.name.clone(), &clock).expect("locks"))
    }

    pub(crate) fn acquire(&self, resource: &str, ttl_ms: u64) -> Result<Granted, Error> {
        let name = LockName::parse(resource)?;
        self.with(|locks| locks.acquire(Ask { name: &name, ttl: ttl(ttl_ms) }))
    }

    pub(crate) fn renew(&self, resource: &str, ttl_ms: u64) -> Result<Granted, Error> {
        let name = LockName::parse(resource)?;
        self.with(|locks| locks.renew(Ask { name: &name, ttl: ttl(ttl_ms) }))
    }

    pub(crate) fn release(&self, resource: &str) -> Result<bool, Error> {
        let name = LockName::parse(resource)?;
        self.with(|locks| locks.release(&name))
    }

    /// Resource and owner of all live locks.
    pub(crate) fn live(&self) -> Vec<(String, String)> {
        let status = self.with(|locks| locks.status()).expect("status");
        status.live.into_iter().map(|lock| (lock.name.to_string(), lock.owner)).collect()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.repo.git.dir()
    }
}

pub(crate) fn ttl(ms: u64) -> Ttl {
    Ttl::from_ms(ms).expect("a ttl")
}

/// The holder that an act was refused for.
pub(crate) fn refused_by<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Conflict(conflict)) => conflict.owner,
        other => panic!("not a conflict: {other:?}"),
    }
}

/// Runs git and gives its output; panics if it fails.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"];
    command.current_dir(dir).args(identity).args(args);
    let out = command.output().expect("git runs");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// What asks git for refs in tables; nothing where it does not know them, as before 2.45.
#[expect(clippy::print_stderr, reason = "whoever runs the tests should know what was not tried")]
pub(crate) fn reftable() -> Option<&'static str> {
    let usage = Command::new("git").args(["init", "-h"]).output().expect("git runs");
    let is_known = String::from_utf8_lossy(&usage.stdout).contains("ref-format");
    if !is_known {
        eprintln!("This git has no reftable: that shape is left out.");
    }
    is_known.then_some("--ref-format=reftable")
}

/// How often a race is run: a few times by default, `TENURE_ROUNDS` multiplies.
pub(crate) fn rounds(default: usize) -> usize {
    let factor = std::env::var("TENURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    default * factor
}

/// `git daemon` on loopback: one process for each connection, as inetd runs it. So nothing is left behind, however the
/// test ends.
struct Daemon {
    port: u16,
}

impl Daemon {
    fn start(base: &Path) -> Daemon {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its number").port();
        let base = base.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let said = OwnedFd::from(stream.try_clone().expect("a second handle"));
                let mut command = Command::new("git");
                command.args(["daemon", "--inetd", "--log-destination=none", "--export-all", "--enable=receive-pack"]);
                command.arg(format!("--base-path={}", base.display())).arg(&base);
                command.stdin(OwnedFd::from(stream)).stdout(said).stderr(Stdio::null());
                let mut child = command.spawn().expect("git daemon");
                std::thread::spawn(move || child.wait());
            }
        });
        Daemon { port }
    }
}
