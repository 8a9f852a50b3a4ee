//! Owns the commands that hand out tasks: what they took goes back if their client is gone when the answer is ready.
//!
//! A worker that never saw its task would keep it until its response timeout; so nobody is given what nobody will read.

use tenure_core::command::WaiterId;
use tenure_core::task::command::{Poll, Polled, TaskView, Unclaim, Update, Updated};
use tokio::sync::oneshot;

use super::desk::Desk;
use super::waits::leave_if_deserted;
use super::{Engine, Unavailable};

impl Desk {
    /// Takes back what was handed out and not received.
    pub(super) fn unclaim(&self, tasks: &[TaskView]) {
        let claims: Vec<_> = tasks.iter().filter_map(|view| Some((view.task.id, view.task.token?))).collect();
        if !claims.is_empty() {
            self.decide_always(|decider| decider.apply(Unclaim(claims)));
        }
    }
}

impl Engine {
    /// Polls for tasks; waits for the first if the command says so. Whoever drops the future leaves the line.
    pub async fn poll(&self, poll: Poll) -> Result<Vec<TaskView>, Unavailable> {
        let desk = &*self.0.desk;
        let decided = desk.decide(|decider| {
            decider.decide(|ledger, turn, waits| match ledger.apply(turn, poll) {
                Polled::Tasks(tasks) => Asked::Answered(Undelivered { desk, tasks }),
                Polled::Queued(waiter) => {
                    let (to, answer) = oneshot::channel();
                    waits.keep_poll(waiter, to);
                    Asked::InLine(PollInLine { desk, waiter, answer: Some(answer) })
                }
            })
        })?;
        match decided.reply {
            Asked::InLine(in_line) => in_line.answer().await,
            Asked::Answered(undelivered) => {
                if let Some(fate) = decided.rests_on {
                    fate.wait().await?;
                }
                Ok(undelivered.deliver())
            }
        }
    }

    /// Takes a worker's word about a task; may hand out its next one.
    pub async fn update(&self, update: Update) -> Result<Updated, Unavailable> {
        let desk = &*self.0.desk;
        let mut decided = desk.decide(|decider| decider.apply(update))?;
        let next = decided.reply.next.take().into_iter().map(|next| *next).collect();
        let undelivered = Undelivered { desk, tasks: next };
        if let Some(fate) = decided.rests_on {
            fate.wait().await?;
        }
        let next = undelivered.deliver().pop().map(Box::new);
        Ok(Updated { next, ..decided.reply })
    }
}

/// A poll, once it was decided.
enum Asked<'a> {
    Answered(Undelivered<'a>),
    InLine(PollInLine<'a>),
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

/// A worker in line: leaves it when it is dropped before the answer.
struct PollInLine<'a> {
    desk: &'a Desk,
    waiter: WaiterId,
    answer: Option<oneshot::Receiver<Vec<TaskView>>>,
}

impl PollInLine<'_> {
    async fn answer(mut self) -> Result<Vec<TaskView>, Unavailable> {
        let Some(answer) = &mut self.answer else { return Err(Unavailable::Stopped) };
        let answered = answer.await;
        self.answer = None;
        answered.map_err(|_| Unavailable::Stopped)
    }
}

impl Drop for PollInLine<'_> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        // Nothing can come any more; what has come was not read.
        answer.close();
        match answer.try_recv() {
            Ok(tasks) => self.desk.unclaim(&tasks),
            Err(_) => {
                drop(answer);
                let waiter = self.waiter;
                self.desk.decide_always(|decider| {
                    decider.decide(|ledger, turn, waits| leave_if_deserted(waiter, ledger, turn, waits))
                });
            }
        }
    }
}
