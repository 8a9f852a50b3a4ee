//! Owns how `git` is called: fixed locale, no prompts, no surprises from the caller's environment, bounded time when
//! a network is involved. Does not interpret what git says beyond its exit code.

use std::ffi::OsStr;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::error::Error;

/// git, in one directory.
#[derive(Debug, Clone)]
pub struct Git {
    dir: PathBuf,
}

/// What a git process left behind.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; none when a signal or the time limit ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// All of its standard error is here: no process is left that could add to it.
    pub is_whole: bool,
}

impl Output {
    /// Whether git says that it worked.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// git's complaint in few words: without the traces and hints around it.
    pub fn complaint(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !line.contains(" packet: ")).collect();
        let said = lines.iter().find_map(|line| line.strip_prefix("fatal: ").or_else(|| line.strip_prefix("error: ")));
        match said {
            Some(line) => line.to_owned(),
            None => lines.join("; "),
        }
    }

    fn or_error(self, command: &str) -> Result<Output, Error> {
        if self.ok() { Ok(self) } else { Err(Error::Git { command: command.to_owned(), detail: self.complaint() }) }
    }
}

impl Git {
    /// git as run from this directory.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Git {
        Git { dir: dir.into() }
    }

    /// The directory it runs in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs to the end and hands back whatever happened.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Result<Output, Error> {
        let child = self.spawn(args, &[])?;
        finish(child, input, None).map_err(|why| failed_to_run(args, &why))
    }

    /// Runs to the end; an exit code other than 0 is an error.
    pub fn done<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Result<Output, Error> {
        self.run(args, input)?.or_error(&subcommand(args))
    }

    /// Runs to the end with much to read and to say: through files that nobody else sees, since a pipe would have both
    /// sides wait for each other thousands of times. An exit code other than 0 is an error.
    pub fn bulk<S: AsRef<OsStr>>(&self, args: &[S], input: &[u8]) -> Result<Vec<u8>, Error> {
        let run = || {
            let (mut asked, mut said, mut complaint) =
                (tempfile::tempfile()?, tempfile::tempfile()?, tempfile::tempfile()?);
            asked.write_all(input)?;
            asked.rewind()?;
            let mut command = self.command(args, &[]);
            command.stdin(asked).stdout(said.try_clone()?).stderr(complaint.try_clone()?);
            let status = command.status()?;
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            said.rewind()?;
            said.read_to_end(&mut stdout)?;
            complaint.rewind()?;
            complaint.read_to_end(&mut stderr)?;
            Ok(Output { code: status.code(), stdout, stderr: text(&stderr), is_whole: true })
        };
        let output = run().map_err(|why| failed_to_run(args, &why))?;
        Ok(output.or_error(&subcommand(args))?.stdout)
    }

    /// Runs something that talks to a remote; after `limit` it is ended and has no exit code.
    pub fn talk<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &str)], limit: Duration) -> Result<Output, Error> {
        let child = self.spawn(args, env)?;
        finish(child, b"", Some(limit)).map_err(|why| failed_to_run(args, &why))
    }

    /// Starts git with all three streams connected to us.
    pub fn spawn<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &str)]) -> Result<Child, Error> {
        let mut command = self.command(args, env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|why| failed_to_run(args, &why))
    }

    fn command<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &str)]) -> Command {
        let mut command = Command::new("git");
        command.current_dir(&self.dir).args(args);
        // Messages are shown to people who may search for them; prompts would hang an agent for ever.
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_TRACE_PACKET");
        // No refresh of the index, no fsmonitor start on our account.
        command.env("GIT_OPTIONAL_LOCKS", "0");
        command.envs(env.iter().copied());
        command
    }
}

fn subcommand<S: AsRef<OsStr>>(args: &[S]) -> String {
    let mut words = args.iter().map(|arg| arg.as_ref().to_string_lossy());
    while let Some(word) = words.next() {
        match word.as_ref() {
            // Its setting is no subcommand.
            "-c" => drop(words.next()),
            option if option.starts_with('-') => {}
            subcommand => return subcommand.to_owned(),
        }
    }
    String::new()
}

fn failed_to_run<S: AsRef<OsStr>>(args: &[S], why: &std::io::Error) -> Error {
    let detail = match why.kind() {
        std::io::ErrorKind::ArgumentListTooLong => "its command line is too long".to_owned(),
        std::io::ErrorKind::NotFound => "the program 'git' was not found (or the directory is gone)".to_owned(),
        _ => why.to_string(),
    };
    Error::Git { command: subcommand(args), detail }
}

/// Feeds and drains all streams at once: a full pipe on either side would stop both of us.
fn finish(mut child: Child, input: &[u8], limit: Option<Duration>) -> std::io::Result<Output> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (out_sender, out) = mpsc::channel();
    let (err_sender, err) = mpsc::channel();
    drain(stdout, out_sender);
    drain(stderr, err_sender);
    if let Some(mut stdin) = stdin {
        // git may end without reading everything; its exit code tells.
        let _ = stdin.write_all(input);
    }
    let end_of_output = match limit {
        None => out.recv().ok(),
        Some(limit) => out.recv_timeout(limit).ok(),
    };
    let status = match &end_of_output {
        Some(_) => child.wait()?.code(),
        None => {
            let _ = child.kill();
            let _ = child.wait();
            None
        }
    };
    // A helper that git left behind may keep the stream open; what it says is not for us.
    let said = err.recv_timeout(Duration::from_secs(1));
    let is_whole = said.is_ok();
    let mut stderr = text(&said.unwrap_or_default());
    if end_of_output.is_none() {
        stderr
            .insert_str(0, &format!("fatal: no answer within {} s\n", limit.unwrap_or_default().as_secs_f64().ceil()));
    }
    Ok(Output { code: status, stdout: end_of_output.unwrap_or_default(), stderr, is_whole })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn drain(stream: Option<impl Read + Send + 'static>, sender: mpsc::Sender<Vec<u8>>) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_subcommand_and_not_a_setting_before_it() {
        assert_eq!(subcommand(&["-c", "push.pushOption=", "push", "--porcelain", "origin"]), "push");
        assert_eq!(subcommand(&["cat-file", "--batch"]), "cat-file");
    }
}
