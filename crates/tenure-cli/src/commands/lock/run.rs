//! `tenure lock run`: hold a lock, renew it at half its ttl, run a command, and stop the command and its children
//! before the lock can be another's.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tenure_git::actor::{Actor, Source};
use tenure_git::{Ask, Error, Granted, LockName};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::acquire::acquire_within;
use super::door::Door;
use super::{RunArgs, explain};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::supervise::{self, Loss};

/// The longest time a command gets to stop by itself.
const STOP_MAX: Duration = Duration::from_secs(10);
/// A renewal that failed for no reason of the lock itself is tried again this often.
const RETRY: Duration = Duration::from_secs(2);

pub(super) fn run(door: &Door, args: &RunArgs, output: Output) -> Outcome {
    let name = LockName::parse(&args.resource).map_err(explain)?;
    let ask = Ask { name: &name, ttl: args.ttl };
    let who = door.actor()?;
    let locks = door.locks_to_act()?;
    door.say_if_alone(&locks, output);
    let (granted, asked) = acquire_within(&locks, ask, args.wait)?;

    let (lose, lost) = oneshot::channel();
    let (finish, finished) = mpsc::channel();
    let ended = std::thread::scope(|scope| {
        let beat = Beat { door, ask, trusted_until: asked + Duration::from_millis(args.ttl.ms()) };
        scope.spawn(move || beat.run(&finished, lose));
        let ended = supervised(args, &granted, &who, lost);
        // Ends the beat before the lock is given back.
        drop(finish);
        ended
    });
    let release = || {
        if let Err(why) = locks.release(&name) {
            output.note(&format!("Warning: the lock on {name} could not be given back and ends by itself: {why}"));
        }
    };
    match ended {
        Ok(supervise::Outcome::Lost) => {
            let _ = locks.release(&name);
            let message = format!("lost the lock on {name}; the command was stopped");
            Err(Failure::new(Exit::LOST, "lost", message))
        }
        Ok(finished) => {
            release();
            Ok(Exit(finished.exit_code()))
        }
        Err(error) => {
            release();
            let word = args.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            let exit = Exit(supervise::start_failure_code(&error));
            Err(Failure::new(exit, "cannot_run", format!("{word} cannot be run: {error}")))
        }
    }
}

fn supervised(
    args: &RunArgs,
    granted: &Granted,
    (actor, source): &(Actor, Source),
    lost: oneshot::Receiver<Loss>,
) -> std::io::Result<supervise::Outcome> {
    let mut words = args.command.iter();
    let mut command = Command::new(words.next().cloned().unwrap_or_default());
    command.args(words);
    command.env("TENURE_RESOURCES", &granted.payload.resource);
    // What the command locks itself, it locks as the same agent.
    match source {
        Source::Env => command.env("GRITE_HOME", &actor.dir).env_remove("TENURE_ACTOR"),
        _ => command.env("TENURE_ACTOR", &actor.id),
    };
    if let Some(token) = granted.token {
        command.env("TENURE_TOKEN", token.to_string());
    }
    let losing = async {
        match lost.await {
            Ok(loss) => loss,
            Err(_) => std::future::pending().await,
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise::supervise(command, losing))
}

/// Renews until the command ends or the lock is lost.
struct Beat<'a> {
    door: &'a Door,
    ask: Ask<'a>,
    trusted_until: Instant,
}

impl Beat<'_> {
    fn run(mut self, finished: &mpsc::Receiver<()>, lose: oneshot::Sender<Loss>) {
        let ttl = Duration::from_millis(self.ask.ttl.ms());
        // TERM comes early enough that the command has time to stop.
        let lead = STOP_MAX.min(ttl / 4);
        let mut next = self.trusted_until.checked_sub(ttl / 2).unwrap_or(self.trusted_until);
        while let Err(mpsc::RecvTimeoutError::Timeout) =
            finished.recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            let asked = Instant::now();
            match self.renew() {
                Ok(()) => {
                    self.trusted_until = asked + ttl;
                    next = asked + ttl / 2;
                }
                Err(Error::Conflict(_) | Error::NotHeld(_) | Error::TooLate { .. }) => {
                    let _ = lose.send(Loss { deadline: self.trusted_until.min(Instant::now() + lead) });
                    return;
                }
                Err(_) if Instant::now() + RETRY + lead >= self.trusted_until => {
                    let _ = lose.send(Loss { deadline: self.trusted_until });
                    return;
                }
                Err(_) => next = Instant::now() + RETRY,
            }
        }
    }

    fn renew(&self) -> Result<(), Error> {
        let locks = self.door.locks_to_act().map_err(|failure| Error::BadInput(failure.message))?;
        locks.renew(self.ask).map(|_| ())
    }
}
