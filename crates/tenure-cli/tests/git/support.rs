//! A hermetic world: a bare remote, clones, an environment of its own, and the program under both of its names.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct World {
    dir: TempDir,
}

/// One clone, as one agent uses it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    home: PathBuf,
    path: String,
    actor: Option<String>,
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Ran {
        self.exits(0)
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().expect("a directory");
        let world = World { dir };
        let bin = world.path("bin");
        std::fs::create_dir_all(&bin).expect("made");
        std::fs::create_dir_all(world.path("home")).expect("made");
        for name in ["grite", "tenure"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), bin.join(name)).expect("linked");
        }
        world.place("").git(&["init", "-q", "--bare", "remote.git"]).ok();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn place(&self, name: &str) -> Place {
        let system = std::env::var("PATH").unwrap_or_default();
        Place {
            dir: self.path(name),
            home: self.path("home"),
            path: format!("{}:{system}", self.path("bin").display()),
            actor: None,
        }
    }

    /// A clone of the remote with one commit on `main`.
    pub(crate) fn clone(&self, name: &str) -> Place {
        self.place("").git(&["clone", "-q", &self.path("remote.git").display().to_string(), name]).ok();
        let place = self.place(name);
        place.git(&["switch", "-qC", "main"]).ok();
        if place.git(&["rev-parse", "-q", "--verify", "origin/main"]).code != Some(0) {
            place.git(&["commit", "-q", "--allow-empty", "-m", "first"]).ok();
            place.git(&["push", "-q", "origin", "main"]).ok();
        } else {
            place.git(&["reset", "-q", "--hard", "origin/main"]).ok();
        }
        place
    }

    /// A repository without a remote.
    pub(crate) fn alone(&self, name: &str) -> Place {
        self.place("").git(&["init", "-q", "-b", "main", name]).ok();
        self.place(name)
    }
}

impl Place {
    /// The same place for another agent.
    pub(crate) fn acting_as(&self, actor: &str) -> Place {
        Place { actor: Some(actor.to_owned()), ..self.clone() }
    }

    /// A folder below, for the same agent.
    pub(crate) fn below(&self, folder: &str) -> Place {
        let dir = self.dir.join(folder);
        std::fs::create_dir_all(&dir).expect("made");
        Place { dir, ..self.clone() }
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env_clear().stdin(Stdio::null());
        command.env("PATH", &self.path).env("HOME", &self.home).env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "t").env(format!("GIT_{who}_EMAIL"), "t@example.com");
        }
        if let Some(actor) = &self.actor {
            command.env("TENURE_ACTOR", actor);
        }
        command
    }

    pub(crate) fn run(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Ran {
        ran(self.command(program).args(args))
    }

    pub(crate) fn tenure(&self, args: &[&str]) -> Ran {
        self.run(self.bin("tenure"), args)
    }

    pub(crate) fn git(&self, args: &[&str]) -> Ran {
        self.run("git", args)
    }

    /// Runs a script as the guide's reader would.
    pub(crate) fn bash(&self, script: &str, env: &[(&str, &str)]) -> Ran {
        ran(self.command("bash").args(["-euo", "pipefail", "-c", script]).envs(env.iter().copied()))
    }

    fn bin(&self, name: &str) -> PathBuf {
        Path::new(self.path.split(':').next().unwrap_or_default()).join(name)
    }

    pub(crate) fn acquire(&self, resource: &str, ttl: &str) -> Ran {
        self.tenure(&["lock", "acquire", "--resource", resource, "--ttl", ttl, "--json"])
    }

    /// The owners of the live locks, by resource.
    pub(crate) fn live(&self) -> Vec<(String, String)> {
        let data = self.tenure(&["lock", "status", "--json"]).ok().json();
        let text = |lock: &Value, key: &str| lock[key].as_str().expect("a text").to_owned();
        let locks = data["data"]["locks"].as_array().expect("a list").clone();
        locks.iter().map(|lock| (text(lock, "resource"), text(lock, "owner"))).collect()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.dir.join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// Stages and commits everything.
    pub(crate) fn commit(&self) -> Ran {
        self.git(&["add", "-A"]).ok();
        self.git(&["commit", "-q", "-m", "change"])
    }
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Asks until it is so; fails after half a minute.
#[track_caller]
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
