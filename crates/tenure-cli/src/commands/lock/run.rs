//! `tenure lock run`: hold a lock, renew it at half its ttl, run a command, and stop the command and its children
//! before the lock can be another's.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tenure_git::actor::{Actor, Source};
use tenure_git::{Ask, Error, Granted, LockName};
use tokio::process::Command;
use tokio::sync::watch;

use super::acquire::acquire_within;
use super::door::Door;
use super::runs::Runs;
use super::{RunArgs, explain};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::supervise::{self, Loss};

/// The longest time a command gets to stop by itself.
const STOP_MAX: Duration = Duration::from_secs(10);
/// A renewal that failed for no reason of the lock itself is tried again this often.
const RETRY: Duration = Duration::from_secs(2);
/// How long a lost lock is tried to be given back: it may still be ours, and the remote may be what failed.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(door: &Door, args: &RunArgs, output: Output) -> Outcome {
    let name = LockName::parse(&args.resource).map_err(explain)?;
    let ask = Ask { name: &name, ttl: args.ttl };
    // Once: whoever becomes the default meanwhile does not hold this lock.
    let who = door.actor()?;
    let locks = door.locks_as(&who.0.id)?;
    door.say_if_alone(&locks, output);
    let runs = Runs::enter(&door.repo, &who.0.id, &name)?;
    let (granted, asked) = match acquire_within(&locks, ask, args.wait) {
        Ok(granted) => granted,
        Err(failure) => {
            // Another run may have left its grant to this one; the remote may be what failed.
            let locks = locks.until(Instant::now() + PATIENCE);
            runs.leave(|nonce| drop(locks.release_grant(&name, nonce)));
            return Err(failure);
        }
    };
    if granted.acquired {
        runs.took(&granted.payload.nonce);
    }
    let ended = held(door, args, &who, Beat::of(&granted, ask, asked));
    let is_lost = matches!(ended, Ok(supervise::Outcome::Lost));
    let locks = if is_lost { locks.until(Instant::now() + PATIENCE) } else { locks };
    runs.leave(|nonce| match locks.release_grant(&name, nonce) {
        Err(why) if !is_lost => {
            output.note(&format!("Warning: the lock on {name} could not be given back and ends by itself: {why}"));
        }
        _ => {}
    });
    match ended {
        Ok(supervise::Outcome::Lost) => {
            let message = format!("lost the lock on {name}; the command was stopped");
            Err(Failure::new(Exit::LOST, "lost", message))
        }
        Ok(finished) => Ok(Exit(finished.exit_code())),
        Err(error) => Err(supervise::cannot_run(&args.command, &error)),
    }
}

/// Runs the command while a thread beside it renews.
fn held(door: &Door, args: &RunArgs, who: &(Actor, Source), beat: Beat<'_>) -> std::io::Result<supervise::Outcome> {
    let (tell, trust) = watch::channel(Trust { until: beat.asked + beat.ttl(), is_lost: false });
    let (finish, finished) = mpsc::channel();
    std::thread::scope(|scope| {
        let command = command(args, beat.granted, who);
        let losing = losing(trust, beat.lead());
        scope.spawn(move || beat.run(door, &who.0.id, &finished, &tell));
        let ended = supervised(command, losing);
        // Ends the beat before the lock is given back.
        drop(finish);
        ended
    })
}

fn command(args: &RunArgs, granted: &Granted, (actor, source): &(Actor, Source)) -> Command {
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
    command
}

fn supervised(command: Command, losing: impl Future<Output = Loss>) -> std::io::Result<supervise::Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(supervise::supervise(command, losing))
}

/// How far the lock can be trusted, as the beat last knew it.
#[derive(Debug, Clone, Copy)]
struct Trust {
    until: Instant,
    is_lost: bool,
}

/// Resolves when the command has to stop. Never waits for the beat: its renewal hangs for as long as the remote does.
async fn losing(mut trust: watch::Receiver<Trust>, lead: Duration) -> Loss {
    loop {
        let Trust { until, is_lost } = *trust.borrow_and_update();
        if is_lost {
            return Loss { deadline: until.min(Instant::now() + lead) };
        }
        let stop_at = stop_at(until, lead);
        let news = async {
            if trust.changed().await.is_err() {
                // The beat is over; what it last knew stays true.
                std::future::pending::<()>().await;
            }
        };
        if tokio::time::timeout_at(stop_at.into(), news).await.is_err() {
            return Loss { deadline: until };
        }
    }
}

/// TERM comes early enough that the command has time to stop.
fn stop_at(until: Instant, lead: Duration) -> Instant {
    until.checked_sub(lead).unwrap_or(until)
}

/// Renews until the command ends or the lock is lost.
struct Beat<'a> {
    granted: &'a Granted,
    ask: Ask<'a>,
    /// When the lock was asked for.
    asked: Instant,
}

impl<'a> Beat<'a> {
    fn of(granted: &'a Granted, ask: Ask<'a>, asked: Instant) -> Beat<'a> {
        Beat { granted, ask, asked }
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ask.ttl.ms())
    }

    fn lead(&self) -> Duration {
        STOP_MAX.min(self.ttl() / 4)
    }

    fn run(self, door: &Door, actor: &str, finished: &mpsc::Receiver<()>, tell: &watch::Sender<Trust>) {
        let Ok(locks) = door.locks_as(actor) else { return };
        let (ttl, nonce) = (self.ttl(), &self.granted.payload.nonce);
        let mut until = self.asked + ttl;
        let mut next = self.asked + ttl / 2;
        while let Err(mpsc::RecvTimeoutError::Timeout) =
            finished.recv_timeout(next.saturating_duration_since(Instant::now()))
        {
            let asked = Instant::now();
            let stop_at = stop_at(until, self.lead());
            if asked >= stop_at {
                return;
            }
            match locks.until(stop_at).renew_grant(self.ask, nonce) {
                Ok(_) => {
                    (until, next) = (asked + ttl, asked + ttl / 2);
                    tell.send_replace(Trust { until, is_lost: false });
                }
                Err(Error::Conflict(_) | Error::NotHeld(_) | Error::TooLate { .. }) => {
                    tell.send_replace(Trust { until, is_lost: true });
                    return;
                }
                Err(_) => next = Instant::now() + RETRY,
            }
        }
    }
}
