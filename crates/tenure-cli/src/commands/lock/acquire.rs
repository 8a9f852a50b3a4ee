//! `tenure lock acquire | renew | release`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_core::Ttl;
use tenure_git::{Ask, Error, Granted, LockName, Locks};

use super::door::{Door, now};
use super::text::{utc, visible};
use super::{AcquireArgs, Named, RenewArgs};
use crate::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// The first pause of a waiting acquire; it doubles.
const POLL_MIN: Duration = Duration::from_millis(200);
/// The longest pause: how late a waiter may notice, against how often a remote is asked.
const POLL_MAX: Duration = Duration::from_secs(5);

pub(super) fn acquire(door: &Door, args: &AcquireArgs, output: Output) -> Outcome {
    let name = args.named.name()?;
    let locks = door.locks_to_act()?;
    door.say_if_alone(&locks, output);
    let (granted, _) = acquire_within(&locks, Ask { name: &name, ttl: args.ttl }, args.wait)?;
    door.result(output, &acquired_json(&granted, args.ttl, &locks), || {
        let head = if granted.acquired { "Lock acquired" } else { "Lock already held, renewed" };
        about(head, &granted)
    });
    Ok(Exit::OK)
}

pub(super) fn renew(door: &Door, args: &RenewArgs, output: Output) -> Outcome {
    let name = args.named.name()?;
    let locks = door.locks_to_act()?;
    let renewed = locks.renew(Ask { name: &name, ttl: args.ttl })?;
    door.result(output, &acquired_json(&renewed, args.ttl, &locks), || about("Lock renewed", &renewed));
    Ok(Exit::OK)
}

pub(super) fn release(door: &Door, named: &Named, output: Output) -> Outcome {
    let name = named.name()?;
    let was_held = door.locks_to_act()?.release(&name)?;
    let data = json!({ "resource": name.as_str(), "released": true, "was_held": was_held });
    door.result(output, &data, || released(&name, was_held));
    Ok(Exit::OK)
}

/// Tries until the wait is over; without one, once. With the grant comes when it was asked for.
pub(super) fn acquire_within(
    locks: &Locks<'_>,
    ask: Ask<'_>,
    wait: Option<Duration>,
) -> Result<(Granted, Instant), Failure> {
    let deadline = wait.map(|wait| Instant::now() + wait);
    let mut pause = POLL_MIN;
    loop {
        // Stamped before the try leaves: a slow answer must not lengthen trust.
        let asked = Instant::now();
        let conflict = match (locks.acquire(ask), deadline) {
            (Err(Error::Conflict(conflict)), Some(_)) => conflict,
            (done, _) => return Ok((done?, asked)),
        };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())).unwrap_or_default();
        if left.is_zero() {
            let mut failure = super::explain(Error::Conflict(conflict));
            (failure.exit, failure.code) = (Exit::TIMED_OUT, "timed_out".to_owned());
            return Err(
                failure.hint(format!("it was still held after {}", crate::span::format(wait.unwrap_or_default())))
            );
        }
        std::thread::sleep(jittered(pause).min(left));
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Between half and all of a pause, so that those who wait for one thing do not ask in step.
fn jittered(pause: Duration) -> Duration {
    let random =
        f64::from(now().unix_ms() as u32 ^ std::process::id().wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
    pause.mul_f64(0.5 + random / 2.0)
}

fn acquired_json(granted: &Granted, ttl: Ttl, locks: &Locks<'_>) -> Value {
    let payload = &granted.payload;
    // One that was held already may last longer than asked for.
    let in_force = payload.expires_unix_ms.saturating_sub(now().unix_ms()).div_ceil(1_000);
    json!({
        "lock": payload,
        "resource": payload.resource,
        "owner": payload.owner,
        "nonce": payload.nonce,
        "expires_unix_ms": payload.expires_unix_ms,
        "ttl_seconds": in_force.max(ttl.ms() / 1_000),
        "token": granted.token,
        "acquired": granted.acquired,
        "remote": locks.remote(),
    })
}

fn about(head: &str, granted: &Granted) -> String {
    let Granted { payload, .. } = granted;
    format!("{head}\n  Resource: {}\n  Expires: {}", visible(&payload.resource), utc(payload.expires_unix_ms))
}

fn released(name: &LockName, was_held: bool) -> String {
    let head = if was_held { "Lock released" } else { "Nothing to release" };
    format!("{head}\n  Resource: {name}")
}
