//! Owns the commands that hand out tasks: what they took goes back if their client is gone when the answer is ready.
//!
//! A worker that never saw its task would keep it until its response timeout; so nobody is given what nobody will read.

use tenure_core::task::command::{Poll, Polled, TaskView, Unclaim, Update, Updated};
use tokio::sync::oneshot;

use super::decider::Decided;
use super::desk::Desk;
use super::line::InLine;
use super::{Engine, Unavailable};

impl Desk {
    /// Takes back what was handed out and not received.
    pub(super) fn unclaim(&self, tasks: &[TaskView]) {
        let claims: Vec<_> = tasks.iter().filter_map(|view| Some((view.task.id, view.task.token?))).collect();
        if !claims.is_empty() {
            self.decide_always(|ledger, turn, _| ledger.apply(turn, Unclaim(claims)));
        }
    }
}

impl Engine {
    /// Polls for tasks; waits for the first if the command says so. Whoever drops the future leaves the line.
    pub async fn poll(&self, poll: Poll) -> Result<Vec<TaskView>, Unavailable> {
        let desk = &*self.0.desk;
        let Decided { reply, rests_on } = desk.decide(|decider| {
            decider.decide(|ledger, turn, waits| match ledger.apply(turn, poll) {
                Polled::Tasks(tasks) => Asked::Answered(Undelivered { desk, tasks }),
                Polled::Queued(waiter) => {
                    let (to, answer) = oneshot::channel();
                    waits.keep_poll(waiter, to);
                    let give_back = |desk: &Desk, tasks: Vec<_>| desk.unclaim(&tasks);
                    Asked::InLine(InLine { desk, waiter, answer: Some(answer), give_back })
                }
            })
        })?;
        match reply {
            Asked::InLine(in_line) => in_line.answer().await,
            Asked::Answered(reply) => Ok(Decided { reply, rests_on }.settled().await?.deliver()),
        }
    }

    /// Takes a worker's word about a task; may hand out its next one.
    pub async fn update(&self, update: Update) -> Result<Updated, Unavailable> {
        let desk = &*self.0.desk;
        let Decided { reply: mut updated, rests_on } = desk.decide(|decider| decider.apply(update))?;
        let tasks = updated.next.take().into_iter().map(|next| *next).collect();
        let next = Decided { reply: Undelivered { desk, tasks }, rests_on }.settled().await?.deliver();
        Ok(Updated { next: next.into_iter().next().map(Box::new), ..updated })
    }
}

/// A poll, once it was decided.
enum Asked<'a> {
    Answered(Undelivered<'a>),
    InLine(InLine<'a, Vec<TaskView>>),
}

/// Tasks on their way to a worker: they go back if it leaves before the answer.
struct Undelivered<'a> {
    desk: &'a Desk,
    tasks: Vec<TaskView>,
}

impl Undelivered<'_> {
    fn deliver(mut self) -> Vec<TaskView> {
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        self.desk.unclaim(&self.tasks);
    }
}
