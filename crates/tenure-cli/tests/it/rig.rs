//! A hermetic place for one test: own home, own data, no environment but what the test sets; everything it starts is
//! ended with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A test that waits for something waits this long at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    home: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig { home: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The program with these words.
    pub(crate) fn tenure(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(words).current_dir(self.home()).stdin(Stdio::null());
        command.env_clear().env("HOME", self.home()).env("PATH", "/usr/bin:/bin");
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        Done::from(self.tenure(words).output().unwrap())
    }

    /// A certificate of this machine's name that nobody trusts yet, in `cert.pem` and `key.pem`.
    pub(crate) fn certify(&self) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(self.home().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(self.home().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    /// A server on a free port with its data in this place.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with("127.0.0.1:0", &[])
    }

    pub(crate) fn serve_with(&self, listen: &str, more: &[&str]) -> Server {
        self.started(self.tenure(&[&["serve", "--listen", listen], more].concat()))
    }

    /// The server that this command starts.
    pub(crate) fn started(&self, mut serve: Command) -> Server {
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http")).unwrap_or_else(|| panic!("{line:?}"));
        Server { url: url.to_owned(), child: Running(child), home: self.home().to_owned() }
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Done {
        Done {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Done {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Done {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// The envelope; it is all there is on standard output.
    #[track_caller]
    pub(crate) fn envelope(&self) -> Value {
        let envelope: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
        assert_eq!(envelope["schema_version"], 1);
        assert_eq!(envelope["ok"], self.code == 0, "{self:?}");
        envelope
    }

    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        self.envelope()["data"].clone()
    }
}

/// A process that is killed when the test is done with it.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    /// Waits for its end; the exit code, or 128 and the signal.
    #[track_caller]
    pub(crate) fn end(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut ended = None;
        wait_until("the process ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        let status = ended.unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) child: Running,
    home: std::path::PathBuf,
}

impl Server {
    /// A command against this server.
    pub(crate) fn tenure(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(words).current_dir(&self.home).stdin(Stdio::null());
        command.env_clear().env("HOME", &self.home).env("PATH", "/usr/bin:/bin").env("TENURE_URL", &self.url);
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Done {
        Done::from(self.tenure(words).output().unwrap())
    }

    /// Starts a command and lets it run.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running(self.tenure(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// The host and port, to start again at the same place.
    pub(crate) fn address(&self) -> &str {
        self.url.split_once("//").unwrap().1
    }

    /// What the server answers to a request as it stands on the wire, without its head.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let length = body.len();
        let head = "host: x\r\nconnection: close\r\nx-agent-id: a\r\ncontent-type: application/json\r\n";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The active leases on a resource.
    pub(crate) fn leases(&self, resource: &str) -> Vec<Value> {
        let done = self.run(&["lease", "ls", "--json", "--resource", resource]).expect(0);
        done.data()["leases"].as_array().unwrap().clone()
    }

    /// The lease that holds a resource, as soon as there is one.
    pub(crate) fn wait_for_lease(&self, resource: &str) -> Value {
        let mut found = Vec::new();
        wait_until(&format!("{resource} is held"), || {
            found = self.leases(resource);
            !found.is_empty()
        });
        found.remove(0)
    }

    pub(crate) fn wait_until_free(&self, resource: &str) {
        wait_until(&format!("{resource} is free"), || self.leases(resource).is_empty());
    }
}

/// Looks again until it is so; a test that waits in vain fails.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process runs: it is there and no zombie.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()), None | Some('Z' | 'X'))
}

/// The process ids that a script wrote into a file, as soon as they are all there.
pub(crate) fn pids(file: &Path, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    wait_until("the processes have started", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        found = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        found.len() >= count && text.ends_with('\n')
    });
    found
}
