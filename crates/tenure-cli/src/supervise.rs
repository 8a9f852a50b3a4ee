//! Owns running one command under a condition: while the condition holds the command runs, when it is lost the whole
//! process group is stopped before a deadline. Knows nothing of leases: the caller says when and until when.
//!
//! ```text
//!            ┌───────── exits by itself ──────────► what it left behind in its group is stopped ─► Finished
//!            │                                     (after a while, or in time for the deadline if `lost` comes)
//!  spawned ──┤ (signals to us go to the group)
//!            └─ lost ─► TERM to the group ─► all gone, or `deadline` − reserve ─► KILL to the group ─► Lost
//! ```
//!
//! - The command leads a process group of its own, so that one signal reaches its children and theirs.
//! - With a terminal as standard input the group gets the terminal: Ctrl-C goes to the command itself.
//! - Does not promise to reach a process that left the group (`setsid`), nor one that outlives a supervisor killed with
//!   SIGKILL: that is what a fencing token is for.

use std::ffi::OsString;
use std::future::Future;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::failure::Failure;

/// The condition was lost and the command stopped: «try again later», as mail programs say it.
pub(crate) const EXIT_LOST: u8 = 75;
/// There is such a file, but it cannot be run.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;

/// KILL is sent this long before the deadline: the kernel needs time to end the processes.
const KILL_RESERVE: Duration = Duration::from_millis(250);
/// How long what a finished command left behind may take to end by itself.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How often the group is asked whether it is empty. There is no event for that.
const POLL: Duration = Duration::from_millis(10);
/// How long a killed group is waited for: dead processes nobody reaps still count as members.
const REAP_MAX: Duration = Duration::from_millis(500);

const FORWARDED: [(SignalKind, Signal); 6] = [
    (SignalKind::interrupt(), Signal::SIGINT),
    (SignalKind::terminate(), Signal::SIGTERM),
    (SignalKind::hangup(), Signal::SIGHUP),
    (SignalKind::quit(), Signal::SIGQUIT),
    (SignalKind::user_defined1(), Signal::SIGUSR1),
    (SignalKind::user_defined2(), Signal::SIGUSR2),
];

/// The condition the command runs under is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loss {
    /// No process of the group may run at this moment any more.
    pub(crate) deadline: Instant,
}

impl Loss {
    fn kill_at(self) -> Instant {
        self.deadline.checked_sub(KILL_RESERVE).unwrap_or(self.deadline)
    }
}

/// How a supervised command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// By itself, or by a signal that somebody sent.
    Finished(ExitStatus),
    /// It was stopped because the condition was lost.
    Lost,
}

impl Outcome {
    /// What to exit with: the command's own code, 128 + the signal that ended it, or [`EXIT_LOST`].
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Outcome::Lost => EXIT_LOST,
            Outcome::Finished(status) => {
                let code = status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(1);
                u8::try_from(code).unwrap_or(u8::MAX)
            }
        }
    }
}

/// Says that the command could not be started, with the exit code that shells give it.
pub(crate) fn cannot_run(command: &[OsString], error: &io::Error) -> Failure {
    let name = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    Failure::new(Exit(start_failure_code(error)), "cannot_run", format!("{name} cannot be run: {error}"))
}

fn start_failure_code(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => EXIT_NOT_FOUND,
        _ => EXIT_NOT_EXECUTABLE,
    }
}

/// Runs the command until it ends or `lost` resolves. Fails only if it cannot be started or waited for.
/// Needs a tokio runtime with I/O and time enabled.
pub(crate) async fn supervise(mut command: Command, lost: impl Future<Output = Loss>) -> io::Result<Outcome> {
    // Before the start: a signal that comes right after it must not end us and leave the command alone.
    let mut signals = listen()?;
    let mut child = command.process_group(0).kill_on_drop(false).spawn()?;
    let group = Group::of(&child)?;
    group.take_terminal();
    tokio::pin!(lost);
    loop {
        tokio::select! {
            biased;
            loss = &mut lost => {
                group.stop_before(loss, &mut child).await?;
                return Ok(Outcome::Lost);
            }
            status = child.wait() => {
                let status = status?;
                group.stop_leftovers(lost).await;
                return Ok(Outcome::Finished(status));
            }
            Some(signal) = signals.recv() => group.send(signal),
        }
    }
}

/// All forwarded signals on one channel.
fn listen() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(FORWARDED.len());
    for (kind, number) in FORWARDED {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(number).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// A process group, named by the command that leads it.
struct Group(Pid);

impl Group {
    fn of(child: &Child) -> io::Result<Group> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        id.map(|id| Group(Pid::from_raw(id))).ok_or_else(|| io::Error::other("the command has no process id"))
    }

    /// A group that is gone already needs no signal, so failures say nothing.
    fn send(&self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }

    fn is_empty(&self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }

    /// Otherwise the first read of the command from the terminal would stop it.
    fn take_terminal(&self) {
        let stdin = io::stdin();
        if stdin.is_terminal() && nix::unistd::tcsetpgrp(&stdin, self.0).is_ok() {
            // It may have read before it had the terminal.
            self.send(Signal::SIGCONT);
        }
    }

    async fn stop_before(&self, loss: Loss, child: &mut Child) -> io::Result<()> {
        let kill_at = loss.kill_at();
        if Instant::now() < kill_at {
            self.send(Signal::SIGTERM);
            // A stopped process takes its TERM only when it is continued.
            self.send(Signal::SIGCONT);
            let leader_gone = tokio::time::timeout_at(kill_at.into(), child.wait()).await.is_ok();
            if leader_gone && self.empty_before(kill_at).await {
                return Ok(());
            }
        }
        self.send(Signal::SIGKILL);
        child.wait().await?;
        self.reaped(loss).await;
        Ok(())
    }

    /// The condition ends with the command; what still runs in its group would run without it. The condition may also be
    /// lost meanwhile: then the leftovers have no more time than the command would have had.
    async fn stop_leftovers(&self, lost: impl Future<Output = Loss>) {
        if self.is_empty() {
            return;
        }
        self.send(Signal::SIGTERM);
        self.send(Signal::SIGCONT);
        let graced = Loss { deadline: Instant::now() + LEFTOVER_GRACE };
        let (empty, loss) = tokio::select! {
            empty = self.empty_before(graced.kill_at()) => (empty, graced),
            loss = lost => {
                let loss = Loss { deadline: loss.deadline.min(graced.deadline) };
                (self.empty_before(loss.kill_at()).await, loss)
            }
        };
        if !empty {
            self.send(Signal::SIGKILL);
            self.reaped(loss).await;
        }
    }

    /// Waits for a killed group, but not beyond the deadline.
    async fn reaped(&self, loss: Loss) {
        self.empty_before(loss.deadline.min(Instant::now() + REAP_MAX)).await;
    }

    async fn empty_before(&self, deadline: Instant) -> bool {
        while !self.is_empty() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt, BufReader};

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(std::process::Stdio::null());
        command
    }

    async fn never() -> Loss {
        std::future::pending().await
    }

    #[tokio::test]
    async fn the_exit_code_is_the_commands_own_or_128_and_the_signal() {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
            assert_eq!(supervise(sh(script), never()).await.expect(script).exit_code(), code, "{script}");
        }
    }

    #[tokio::test]
    async fn a_command_that_cannot_start_says_why_as_shells_do() {
        let missing = supervise(Command::new("/nowhere/at/all"), never()).await.expect_err("missing");
        assert_eq!(start_failure_code(&missing), EXIT_NOT_FOUND);
        let directory = supervise(Command::new("/"), never()).await.expect_err("a directory");
        assert_eq!(start_failure_code(&directory), EXIT_NOT_EXECUTABLE);
    }

    /// The process ids on the first line.
    async fn read_ids(reader: io::PipeReader) -> Vec<i32> {
        let reader = tokio::fs::File::from_std(std::fs::File::from(std::os::fd::OwnedFd::from(reader)));
        let line = BufReader::new(reader).lines().next_line().await.expect("readable").expect("a line");
        line.split_whitespace().map(|id| id.parse().expect("an id")).collect()
    }

    /// Runs a script that prints its children's ids, loses the condition when they are known, and returns them.
    async fn lose_after_start(script: &str, grace: Duration) -> (Outcome, Vec<i32>, Duration) {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut command = sh(script);
        command.stdout(writer);
        let (tell, told) = tokio::sync::oneshot::channel();
        let ids = tokio::spawn(async move {
            let ids = read_ids(reader).await;
            let _ = tell.send(());
            ids
        });
        let mut lost_at = None;
        let outcome = supervise(command, async {
            let _ = told.await;
            let now = Instant::now();
            lost_at = Some(now);
            Loss { deadline: now + grace }
        });
        let outcome = outcome.await.expect("supervised");
        (outcome, ids.await.expect("ids"), lost_at.expect("lost").elapsed())
    }

    fn runs(id: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        !matches!(stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()), None | Some('Z' | 'X'))
    }

    #[tokio::test]
    async fn on_loss_the_whole_tree_is_stopped_long_before_the_deadline_if_it_listens() {
        let script = "sleep 600 & a=$!; (sleep 600 & echo $! >&3; wait) 3>&1 | { read b; echo $$ $a $b; sleep 600; }";
        let (outcome, ids, took) = lose_after_start(script, Duration::from_secs(20)).await;
        assert_eq!(outcome.exit_code(), EXIT_LOST);
        assert!(ids.len() == 3 && ids.iter().all(|id| !runs(*id)), "{ids:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[tokio::test]
    async fn a_tree_that_ignores_term_is_killed_before_the_deadline() {
        let script = "trap '' TERM; sleep 600 & echo $$ $!; wait; sleep 600";
        let grace = Duration::from_millis(1_500);
        let (outcome, ids, took) = lose_after_start(script, grace).await;
        assert_eq!(outcome, Outcome::Lost);
        assert!(ids.iter().all(|id| !runs(*id)), "{ids:?}");
        assert!(took < grace + Duration::from_millis(250), "{took:?}");
    }

    #[tokio::test]
    async fn what_a_finished_command_left_behind_is_killed_before_the_deadline_of_a_loss() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut command = sh("trap '' TERM; sleep 600 & echo $$ $!; exit 3");
        command.stdout(writer);
        let (mut ids, mut deadline) = (Vec::new(), None);
        let outcome = supervise(command, async {
            ids = read_ids(reader).await;
            // The command has ended and was waited for; only what it left is there.
            while std::fs::exists(format!("/proc/{}", ids[0])).expect("/proc") {
                tokio::time::sleep(POLL).await;
            }
            Loss { deadline: *deadline.insert(Instant::now() + Duration::from_secs(1)) }
        });
        let outcome = outcome.await.expect("supervised");
        let late = deadline.expect("lost").elapsed();
        assert!(late < KILL_RESERVE, "{late:?} after the deadline");
        assert!(!runs(ids[1]), "{ids:?}");
        assert_eq!(outcome.exit_code(), 3, "the command itself had ended before");
    }

    #[tokio::test]
    async fn what_a_finished_command_left_in_its_group_is_stopped() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut command = sh("sleep 600 & echo $!; exit 3");
        command.stdout(writer);
        assert_eq!(supervise(command, never()).await.expect("run").exit_code(), 3);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(reader), &mut line).expect("a line");
        assert!(!runs(line.trim().parse().expect("an id")));
    }
}
