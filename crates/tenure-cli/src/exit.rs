//! Owns what the program exits with. The numbers are a promise: `tenure help exit-codes` prints them.

use std::process::ExitCode;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Exit = Exit(0);
    pub(crate) const FAILURE: Exit = Exit(1);
    pub(crate) const USAGE: Exit = Exit(2);
    pub(crate) const NOT_FOUND: Exit = Exit(3);
    pub(crate) const CONFLICT: Exit = Exit(4);
    pub(crate) const UNAVAILABLE: Exit = Exit(5);
    pub(crate) const LOST: Exit = Exit(crate::supervise::EXIT_LOST);
    pub(crate) const DENIED: Exit = Exit(77);
    pub(crate) const TIMED_OUT: Exit = Exit(124);
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.0)
    }
}

/// The text of `tenure help exit-codes`.
pub(crate) const TOPIC: &str = "\
Exit codes of every tenure command, the same with and without --json:

    0  done
    1  something else went wrong; the message says what
    2  wrong usage: an unknown flag, a value that cannot be read, a field the server refused
    3  not found: no such lease, lock, task, workflow, key or repository
    4  conflict: held by somebody else, closed after a lost holder, would deadlock, or not yours
    5  unavailable: the server or the git remote cannot be reached, or has too much to do
   75  lost: the lease ended before this command was done with it
   77  denied: the API key is missing, unknown, or may not do this
  124  timed out: the wait ran out while somebody else still held it

'tenure lease check' exits with 4 if somebody is in the way.

'tenure run' and 'tenure lock run' exit with the code of the command they ran, or 128 plus the
number of the signal that ended it. Their own outcomes are the codes above, and:

   75  the lease was lost while the command ran; the command and its children were stopped
  126  the command is there but cannot be run
  127  there is no such command
";
