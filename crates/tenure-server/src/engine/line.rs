//! Owns a client in line: whoever drops it before its answer leaves the line.

use tenure_core::command::WaiterId;
use tokio::sync::oneshot;

use super::Unavailable;
use super::desk::Desk;
use super::waits::leave_if_deserted;

pub(super) struct InLine<'a, T> {
    pub(super) desk: &'a Desk,
    pub(super) waiter: WaiterId,
    /// Nothing once it has come.
    pub(super) answer: Option<oneshot::Receiver<T>>,
    /// What is done with an answer that came too late to be read.
    pub(super) give_back: fn(&Desk, T),
}

impl<T> InLine<'_, T> {
    pub(super) async fn answer(mut self) -> Result<T, Unavailable> {
        let Some(answer) = &mut self.answer else { return Err(Unavailable::Stopped) };
        let answered = answer.await;
        self.answer = None;
        answered.map_err(|_| Unavailable::Stopped)
    }
}

impl<T> Drop for InLine<'_, T> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        // From here on nothing can come, and the ledger sees an empty chair.
        answer.close();
        match answer.try_recv() {
            Ok(unread) => (self.give_back)(self.desk, unread),
            Err(_) => {
                let waiter = self.waiter;
                self.desk.decide_always(|ledger, turn, waits| leave_if_deserted(waiter, ledger, turn, waits));
            }
        }
    }
}
