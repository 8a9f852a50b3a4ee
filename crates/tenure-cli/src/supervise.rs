//! Owns running one command under a condition: while the condition holds the command runs, when it is lost everything that runs
//! under it is stopped before a deadline. Knows nothing of leases: the caller says when and until when.
//!
//! ```text
//!            ┌───────── exits by itself ──────────► what it left behind in its group is stopped ─► Finished
//!            │                                     (after a while, or in time for the deadline if `lost` comes)
//!  spawned ──┤ (signals to us go to the group)
//!            ├─ stopped at the terminal ─► all of it stands still, we too ─► continued: goes on, unless lost meanwhile
//!            └─ lost ─► TERM to all of it ─► all gone, or `deadline` − reserve ─► KILL to all of it ─► Lost
//! ```
//!
//! - The command leads a process group of its own, so that one signal reaches its children and theirs. What has left the group is
//!   found on Linux (`tree`).
//! - A command that asks for the terminal gets it, if it is ours to give (`terminal`). Who stops us stops the command: it must not
//!   work on while nobody looks after the condition.
//! - Does not promise to reach a process that outlives a supervisor killed with SIGKILL: that is what a fencing token is for.

mod signals;
mod terminal;
mod tree;

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg, raise};
use nix::unistd::{Pid, getpgrp};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use self::signals::News;
use self::terminal::Terminal;
use self::tree::Tree;
use crate::exit::Exit;
use crate::failure::Failure;

/// The condition was lost and the command stopped: «try again later», as mail programs say it.
pub(crate) const EXIT_LOST: u8 = 75;
/// There is such a file, but it cannot be run.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
/// There is no such command.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;

/// KILL is sent this long before the deadline, or when half of the time is over if there is little: the kernel needs time to end
/// the processes.
pub(crate) const KILL_RESERVE: Duration = Duration::from_millis(250);
/// How long what a finished command left behind may take to end by itself.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);
/// How often the group is asked whether it is empty. There is no event for that.
const POLL: Duration = Duration::from_millis(10);
/// How long a killed group is waited for: dead processes nobody reaps still count as members.
const REAP_MAX: Duration = Duration::from_millis(500);

/// After a stop, what became due meanwhile has this long to be noticed before the command goes on.
const LOOK: Duration = Duration::from_millis(50);

/// The condition the command runs under is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loss {
    /// Nothing of the command may run at this moment any more.
    pub(crate) deadline: Instant,
}

impl Loss {
    fn kill_at(self) -> Instant {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.deadline.checked_sub(KILL_RESERVE.min(left / 2)).unwrap_or(self.deadline)
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
    let mut news = signals::listen()?;
    tree::adopt_orphans();
    let mut child = command.process_group(0).kill_on_drop(false).spawn()?;
    let mut run = Run::of(&child)?;
    tokio::pin!(lost);
    loop {
        let heard = tokio::select! {
            biased;
            loss = &mut lost => return run.stop_before(loss, &mut child).await,
            status = child.wait() => {
                let status = status.inspect_err(|_| run.tree.send_to_all(Signal::SIGKILL))?;
                run.stop_leftovers(lost).await;
                return Ok(Outcome::Finished(status));
            }
            Some(heard) = news.recv() => heard,
        };
        let is_to_stand_still = match heard {
            News::Forward(signal) => {
                run.forward(signal);
                false
            }
            News::Suspend => run.terminal.has_shell(),
            News::Child => run.look_at_children(),
        };
        if is_to_stand_still && let Some(loss) = run.stand_still(&mut lost, &mut news).await {
            return run.stop_before(loss, &mut child).await;
        }
    }
}

/// A command that runs.
struct Run {
    tree: Tree,
    terminal: Terminal,
}

impl Run {
    fn of(child: &Child) -> io::Result<Run> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let leader = id.map(Pid::from_raw).ok_or_else(|| io::Error::other("the command has no process id"))?;
        Ok(Run { tree: Tree { leader }, terminal: Terminal::open() })
    }

    fn forward(&self, signal: Signal) {
        self.tree.send(signal);
        if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) {
            // A stopped process takes what is to end it only when it is continued.
            self.tree.send(Signal::SIGCONT);
        }
    }

    /// Says whether the command was stopped, and whoever waits for us should see it.
    fn look_at_children(&mut self) -> bool {
        self.tree.bury_orphans();
        match self.tree.stopped_by() {
            None => false,
            Some(Signal::SIGTTIN | Signal::SIGTTOU) if self.terminal.lend(self.tree.leader) => self.go_on(),
            // Nobody could continue us; stopped by hand it stays so until the same hand continues it.
            Some(Signal::SIGTSTP) if !self.terminal.has_shell() => self.go_on(),
            Some(_) => self.terminal.has_shell(),
        }
    }

    fn go_on(&self) -> bool {
        self.tree.send(Signal::SIGCONT);
        false
    }

    /// Stops everything and ourselves. Nothing renews the condition meanwhile: if it is lost by the time that we are continued, the
    /// command stays as it is, to be ended.
    async fn stand_still(
        &mut self,
        lost: &mut (impl Future<Output = Loss> + Unpin),
        news: &mut mpsc::Receiver<News>,
    ) -> Option<Loss> {
        let frozen = self.tree.freeze();
        let was_lent = self.terminal.take_back();
        if was_lent {
            // The terminal has told the group that had it; the others of ours are to hear of it too.
            let _ = killpg(getpgrp(), Signal::SIGTSTP);
        }
        let _ = raise(Signal::SIGSTOP);
        let look = tokio::time::sleep(LOOK);
        tokio::pin!(look);
        loop {
            tokio::select! {
                loss = &mut *lost => return Some(loss),
                () = &mut look => break,
                Some(heard) = news.recv() => if let News::Forward(signal) = heard {
                    self.tree.send(signal);
                },
            }
        }
        // What stopped it is over, also for the next time that somebody asks.
        self.tree.stopped_by();
        if was_lent {
            self.terminal.lend(self.tree.leader);
        }
        self.tree.thaw(&frozen);
        None
    }

    async fn stop_before(&self, loss: Loss, child: &mut Child) -> io::Result<Outcome> {
        let kill_at = loss.kill_at();
        // Not if the time is over: what stands still must not go on for a moment more.
        if Instant::now() < kill_at {
            self.tree.send_to_all(Signal::SIGTERM);
            // A stopped process takes its TERM only when it is continued.
            self.tree.send_to_all(Signal::SIGCONT);
            let is_leader_gone = tokio::time::timeout_at(kill_at.into(), child.wait()).await.is_ok();
            if is_leader_gone && so_before(kill_at, || self.tree.is_empty()).await {
                return Ok(Outcome::Lost);
            }
        }
        self.kill_before(loss, child).await?;
        Ok(Outcome::Lost)
    }

    /// Again and again: a process that was started while the others were counted is found by the next count.
    async fn kill_before(&self, loss: Loss, child: &mut Child) -> io::Result<()> {
        self.tree.send_to_all(Signal::SIGKILL);
        child.wait().await?;
        let patience = loss.deadline.max(Instant::now() + REAP_MAX);
        while !self.tree.is_empty() && Instant::now() < patience {
            self.tree.send_to_all(Signal::SIGKILL);
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The condition ends with the command; what still runs in its group would run without it. The condition may also be
    /// lost meanwhile: then the leftovers have no more time than the command would have had. What has left the group on purpose,
    /// as a daemon does, may stay.
    async fn stop_leftovers(&self, lost: impl Future<Output = Loss>) {
        if self.tree.is_group_empty() {
            return;
        }
        self.tree.send(Signal::SIGTERM);
        self.tree.send(Signal::SIGCONT);
        let graced = Loss { deadline: Instant::now() + LEFTOVER_GRACE };
        let (empty, loss) = tokio::select! {
            empty = self.group_gone_before(graced.kill_at()) => (empty, graced),
            loss = lost => {
                let loss = Loss { deadline: loss.deadline.min(graced.deadline) };
                (self.group_gone_before(loss.kill_at()).await, loss)
            }
        };
        if !empty {
            self.tree.send(Signal::SIGKILL);
            // Not beyond the deadline: dead processes that nobody reaps still count as members.
            self.group_gone_before(loss.deadline.min(Instant::now() + REAP_MAX)).await;
        }
    }

    async fn group_gone_before(&self, deadline: Instant) -> bool {
        so_before(deadline, || self.tree.is_group_empty()).await
    }
}

/// Asks until it is so; there is no event for an empty group.
async fn so_before(deadline: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
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

    /// A supervisor takes every process group below its own process for its command's, so that one test at a time may have one.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    #[tokio::test]
    async fn the_exit_code_is_the_commands_own_or_128_and_the_signal() {
        let _alone = ALONE.lock().await;
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
            assert_eq!(supervise(sh(script), never()).await.expect(script).exit_code(), code, "{script}");
        }
    }

    #[tokio::test]
    async fn a_command_that_cannot_start_says_why_as_shells_do() {
        let _alone = ALONE.lock().await;
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
        let _alone = ALONE.lock().await;
        let script = "sleep 600 & a=$!; (sleep 600 & echo $! >&3; wait) 3>&1 | { read b; echo $$ $a $b; sleep 600; }";
        let (outcome, ids, took) = lose_after_start(script, Duration::from_secs(20)).await;
        assert_eq!(outcome.exit_code(), EXIT_LOST);
        assert!(ids.len() == 3 && ids.iter().all(|id| !runs(*id)), "{ids:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[tokio::test]
    async fn a_tree_that_ignores_term_is_killed_before_the_deadline() {
        let _alone = ALONE.lock().await;
        let script = "trap '' TERM; sleep 600 & echo $$ $!; wait; sleep 600";
        let grace = Duration::from_millis(1_500);
        let (outcome, ids, took) = lose_after_start(script, grace).await;
        assert_eq!(outcome, Outcome::Lost);
        assert!(ids.iter().all(|id| !runs(*id)), "{ids:?}");
        assert!(took < grace + Duration::from_millis(250), "{took:?}");
    }

    #[tokio::test]
    async fn what_a_finished_command_left_behind_is_killed_before_the_deadline_of_a_loss() {
        let _alone = ALONE.lock().await;
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
        let _alone = ALONE.lock().await;
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut command = sh("sleep 600 & echo $!; exit 3");
        command.stdout(writer);
        assert_eq!(supervise(command, never()).await.expect("run").exit_code(), 3);
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(reader), &mut line).expect("a line");
        assert!(!runs(line.trim().parse().expect("an id")));
    }

    #[tokio::test]
    async fn on_loss_those_are_stopped_too_who_have_left_the_group_and_lost_their_parents() {
        let _alone = ALONE.lock().await;
        let script = "timeout 600 sh -c 'trap \"\" TERM; echo $$ > /dev/fd/3; while :; do sleep 0.1; done' 3>&1 & \
            (setsid sleep 600 & echo $!) ; wait";
        let script = format!("{{ {script}; }} | {{ read a; read b; echo $a $b; cat; }}");
        let (outcome, ids, _) = lose_after_start(&script, Duration::from_millis(1_500)).await;
        assert_eq!(outcome, Outcome::Lost);
        assert!(ids.len() == 2 && ids.iter().all(|id| !runs(*id)), "{ids:?}");
    }

    #[tokio::test]
    async fn the_command_hears_of_a_loss_also_when_there_is_little_time() {
        let _alone = ALONE.lock().await;
        let heard = tempfile::NamedTempFile::new().expect("a file");
        let script =
            format!("trap 'echo term > {}; exit' TERM; echo $$; while :; do sleep 0.01; done", heard.path().display());
        let (outcome, ..) = lose_after_start(&script, KILL_RESERVE).await;
        assert_eq!(outcome, Outcome::Lost);
        assert_eq!(std::fs::read_to_string(heard.path()).expect("readable"), "term\n");
    }
}
