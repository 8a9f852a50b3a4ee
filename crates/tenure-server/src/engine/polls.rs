//! Owns the commands that hand out tasks: what they took goes back if their client is gone when the answer is ready.
//!
//! A worker that never saw its task would keep it until its response timeout; so nobody is given what nobody will read.

use std::sync::Arc;

use tenure_core::task::command::{Poll, Polled, TaskView, Unclaim, Update, Updated};
use tenure_core::{Ledger, Turn};
use tokio::sync::oneshot;

use super::job::{Call, Job, Place, leave_if_deserted};
use super::queue::Queue;
use super::waits::Waits;

/// A poll: its answer may come later.
pub(super) struct Ask {
    poll: Option<Poll>,
    tasks: Vec<TaskView>,
    /// Goes to [`Waits`] when the poll is put in line.
    to: Option<oneshot::Sender<Vec<TaskView>>>,
    place: Arc<Place>,
    queue: Arc<Queue>,
}

impl Ask {
    pub(super) fn new(
        poll: Poll,
        place: Arc<Place>,
        queue: Arc<Queue>,
    ) -> (Box<Ask>, oneshot::Receiver<Vec<TaskView>>) {
        let (to, answer) = oneshot::channel();
        (Box::new(Ask { poll: Some(poll), tasks: Vec::new(), to: Some(to), place, queue }), answer)
    }
}

impl Job for Ask {
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, waits: &Waits) {
        let (Some(poll), Some(to)) = (self.poll.take(), self.to.take()) else { return };
        if to.is_closed() {
            return;
        }
        match ledger.apply(turn, poll) {
            Polled::Tasks(tasks) => (self.tasks, self.to) = (tasks, Some(to)),
            Polled::Queued(waiter) => {
                waits.keep_poll(waiter, to, Arc::clone(&self.queue));
                self.place.set(waiter);
                leave_if_deserted(waiter, ledger, turn, waits);
            }
        }
    }

    fn answer(self: Box<Self>) {
        if let Some(to) = self.to {
            deliver(to, self.tasks, &self.queue);
        }
    }
}

/// Gives the tasks to who polled, or back to the ledger.
pub(super) fn deliver(to: oneshot::Sender<Vec<TaskView>>, tasks: Vec<TaskView>, queue: &Queue) {
    if let Err(undelivered) = to.send(tasks) {
        take_back(&undelivered, queue);
    }
}

fn take_back(tasks: &[TaskView], queue: &Queue) {
    let claims: Vec<_> = tasks.iter().filter_map(|view| Some((view.task.id, view.task.token?))).collect();
    if !claims.is_empty() {
        queue.push_always(Call::new(Unclaim(claims)).0);
    }
}

/// An update, that may hand out the next task.
pub(super) struct Say {
    update: Option<Update>,
    updated: Option<Updated>,
    to: oneshot::Sender<Updated>,
    queue: Arc<Queue>,
}

impl Say {
    pub(super) fn new(update: Update, queue: Arc<Queue>) -> (Box<Say>, oneshot::Receiver<Updated>) {
        let (to, answer) = oneshot::channel();
        (Box::new(Say { update: Some(update), updated: None, to, queue }), answer)
    }
}

impl Job for Say {
    fn decide(&mut self, ledger: &mut Ledger, turn: &mut Turn<'_>, _waits: &Waits) {
        if let Some(update) = self.update.take() {
            self.updated = Some(ledger.apply(turn, update));
        }
    }

    fn answer(self: Box<Self>) {
        let Some(updated) = self.updated else { return };
        if let Err(Updated { next: Some(next), .. }) = self.to.send(updated) {
            take_back(&[*next], &self.queue);
        }
    }
}
