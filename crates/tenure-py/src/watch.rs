//! Owns telling Python that a lease was lost, without a task that waits for it: starting one for every lease would cost
//! each acquire a change of threads.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::prelude::*;
use tenure::Loss;
use tokio::runtime::Handle;

use crate::runtime::visit;

struct Waiting {
    lost: Pin<Box<dyn Future<Output = Loss> + Send>>,
    callback: Py<PyAny>,
}

/// Calls a Python function once, when a lease is lost, from a thread of the runtime.
pub(crate) struct Watch {
    waiting: Mutex<Option<Waiting>>,
    runtime: Handle,
}

impl Watch {
    pub(crate) fn start(
        lost: impl Future<Output = Loss> + Send + 'static,
        callback: Py<PyAny>,
        runtime: Handle,
    ) -> Arc<Watch> {
        let waiting = Mutex::new(Some(Waiting { lost: Box::pin(lost), callback }));
        let watch = Arc::new(Watch { waiting, runtime });
        watch.look();
        watch
    }

    /// Nobody wants to know any more. What waits knows this watch and the other way round, so this must be called.
    pub(crate) fn end(&self) {
        let over = self.waiting().take();
        drop(over);
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(self: &Arc<Watch>) {
        let waker = Waker::from(Arc::clone(self));
        let mut slot = self.waiting();
        let Some(waiting) = slot.as_mut() else { return };
        let Poll::Ready(loss) = waiting.lost.as_mut().poll(&mut Context::from_waker(&waker)) else { return };
        let told = slot.take();
        drop(slot);
        // Not here: getting the interpreter lock may take as long as Python likes, and the heartbeat waits.
        self.runtime.spawn_blocking(move || {
            visit(|py| {
                let Some(Waiting { callback, .. }) = told else { return };
                if let Err(error) = callback.call1(py, (loss.to_string(),)) {
                    error.write_unraisable(py, None);
                }
            })
        });
    }
}

impl Wake for Watch {
    /// From the heartbeat's thread.
    fn wake(self: Arc<Watch>) {
        self.look();
    }
}
