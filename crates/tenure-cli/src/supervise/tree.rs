//! Owns everything that runs under a supervised command: its process group, and what has left it (`timeout`, the jobs of a shell,
//! `setsid`), which Linux leaves to us when its parents are gone.
//!
//! Elsewhere only the group is known. A process that is started while the others are counted is found by the next count.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};

/// A command and everything below it.
pub(super) struct Tree {
    /// The command; its process group has the same name.
    pub(super) leader: Pid,
}

/// One line of the system's list.
struct Process {
    id: Pid,
    parent: Pid,
    group: Pid,
    state: char,
}

impl Process {
    /// Whether it has ended, waited for or not.
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether its parents are gone, or it is the command. What we start for ourselves stays in our own group.
    fn is_left_to_us(&self) -> bool {
        self.parent == Pid::this() && self.group != getpgrp()
    }
}

/// Has processes left to us whose parents are gone.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // Without it orphans go to the system's first process, and are not found.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

impl Tree {
    /// A group that is gone already needs no signal, so failures say nothing.
    pub(super) fn send(&self, signal: Signal) {
        let _ = killpg(self.leader, signal);
    }

    /// Reaches also those who have left the group.
    pub(super) fn send_to_all(&self, signal: Signal) {
        self.send(signal);
        for one in self.strays() {
            let _ = kill(one.id, signal);
        }
    }

    /// Stops everything; says who outside of the group ran.
    pub(super) fn freeze(&self) -> Vec<Pid> {
        self.send(Signal::SIGSTOP);
        let mut frozen = Vec::new();
        loop {
            let running = self.strays().into_iter().filter(|one| !one.is_stopped() && !frozen.contains(&one.id));
            let more: Vec<Pid> = running.map(|one| one.id).collect();
            if more.is_empty() {
                return frozen;
            }
            for id in &more {
                let _ = kill(*id, Signal::SIGSTOP);
            }
            frozen.extend(more);
        }
    }

    /// Lets all of it go on.
    pub(super) fn thaw(&self, frozen: &[Pid]) {
        self.send(Signal::SIGCONT);
        for one in self.strays().into_iter().filter(|one| frozen.contains(&one.id)) {
            let _ = kill(one.id, Signal::SIGCONT);
        }
    }

    /// Whether the group is empty; ended processes that somebody else must wait for count.
    pub(super) fn is_group_empty(&self) -> bool {
        self.bury_orphans();
        killpg(self.leader, None) == Err(Errno::ESRCH)
    }

    /// Whether nothing is left, in the group or out of it.
    pub(super) fn is_empty(&self) -> bool {
        self.is_group_empty() && self.strays().is_empty()
    }

    /// The signal that has stopped the command, if it has stopped since this was asked last.
    pub(super) fn stopped_by(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.leader), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Lets go of orphans that have ended. Children that are not of the command are waited for by who started them.
    pub(super) fn bury_orphans(&self) {
        let is_orphan = |one: &Process| one.is_left_to_us() && one.id != self.leader;
        for one in processes().into_iter().filter(|one| one.is_dead() && is_orphan(one)) {
            let _ = waitpid(one.id, Some(WaitPidFlag::WNOHANG));
        }
    }

    /// Those who live outside of the group.
    fn strays(&self) -> Vec<Process> {
        self.members().into_iter().filter(|one| one.group != self.leader).collect()
    }

    /// All who live: the group, whatever is below one of it, and orphans that were left to us.
    fn members(&self) -> Vec<Process> {
        let mut rest = processes();
        let mut known = vec![self.leader];
        let mut members = Vec::new();
        loop {
            let is_member =
                |one: &Process| one.group == self.leader || one.is_left_to_us() || known.contains(&one.parent);
            let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_member);
            if found.is_empty() {
                break;
            }
            known.extend(found.iter().map(|one| one.id));
            members.extend(found);
            rest = others;
        }
        members.retain(|one| !one.is_dead());
        members
    }
}

/// Everything that runs on the machine; nothing where there is no `/proc`.
fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| parse(&stat)).collect()
}

/// Reads a line of `/proc/ID/stat`. The name in it may hold anything, also brackets.
fn parse(stat: &str) -> Option<Process> {
    let id = |word: &str| word.parse().ok().map(Pid::from_raw);
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some(Process { id: id(stat.split(' ').next()?)?, state, parent: id(rest.next()?)?, group: id(rest.next()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let one = parse("42 (a) b (c)) T 7 41 40 0 -1").expect("a process");
        assert_eq!((one.id.as_raw(), one.parent.as_raw(), one.group.as_raw()), (42, 7, 41));
        assert!(one.is_stopped() && !one.is_dead());
        assert!(parse("42 (a").is_none());
    }
}
