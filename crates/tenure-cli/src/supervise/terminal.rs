//! Owns the loan of the terminal: a command in a process group of its own may use it only while that group has it.
//!
//! It is lent when the command asks for it, and given back with the end of the run, so that whoever started us goes on with it. The
//! others of our own group (a pager behind a pipe) keep it as long as the command does not ask.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getpgrp, getsid, tcgetpgrp, tcsetpgrp};

/// The terminal that we were started from.
pub(super) struct Terminal {
    tty: Option<File>,
    is_lent: bool,
}

impl Terminal {
    pub(super) fn open() -> Terminal {
        Terminal { tty: File::open("/dev/tty").ok(), is_lent: false }
    }

    /// Hands it to a group, if it is ours to give: not so in the background. Says whether the group has it.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let Some(tty) = &self.tty else { return false };
        let front = tcgetpgrp(tty);
        let is_lent_now = front == Ok(getpgrp()) && tcsetpgrp(tty, group).is_ok();
        self.is_lent |= is_lent_now;
        is_lent_now || front == Ok(group)
    }

    /// Takes it back; says whether it was lent.
    pub(super) fn take_back(&mut self) -> bool {
        let was_lent = std::mem::take(&mut self.is_lent);
        if let Some(tty) = self.tty.as_ref().filter(|_| was_lent) {
            // We are in the background now, and would be stopped for asking.
            let asking = SigSet::from(Signal::SIGTTOU);
            let before = asking.thread_swap_mask(SigmaskHow::SIG_BLOCK);
            let _ = tcsetpgrp(tty, getpgrp());
            if let Ok(before) = before {
                let _ = before.thread_set_mask();
            }
        }
        was_lent
    }

    /// Whether a shell with jobs is there to continue what stops. The group of a session's leader has nobody above it.
    pub(super) fn has_shell(&self) -> bool {
        self.tty.is_some() && getsid(None).is_ok_and(|session| session != getpgrp())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
