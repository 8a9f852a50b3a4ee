//! Owns what becomes of a panic in a function that somebody gave us: a failure like any other, which can be reported. A task that
//! ended without a word would be waited for until its timeout.
//!
//! Does not promise anything about what the function shares with others, and does nothing where a panic ends the process.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// What a function gives, or the words of its panic.
pub(crate) async fn caught<T>(running: impl Future<Output = T>) -> Result<T, String> {
    let mut running = pin!(running);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        // It is not asked again.
        Err(panic) => Poll::Ready(Err(format!("it panicked: {}", words(&*panic)))),
    })
    .await
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}
