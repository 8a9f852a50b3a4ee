//! Owns what follows the end of a lease for documents: marks of what was lost, terms of coordinators, attempts at steps, and
//! runs of workflows. All of it happens in the turn of the command that ended the lease, so it is in the same commit.

use crate::command::Acquire;
use crate::lease::{End, Lease};
use crate::ledger::{Ledger, Turn};
use crate::refusal::Refusal;

impl Ledger {
    /// Notes the end of a lease, if documents care. They are looked at when the whole family of the lease has ended.
    pub(crate) fn note_end(&mut self, lease: &Lease, end: End) {
        let concerns = |kind: &str| matches!(kind, "intent" | "portfolio" | "coordinator");
        if lease.resources.iter().any(|resource| concerns(resource.kind())) {
            self.ended.push((lease.clone(), end));
        }
    }

    /// Does what follows from everything that ended or moved, until nothing more does.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        loop {
            for (lease, end) in std::mem::take(&mut self.ended) {
                if self.intent_of(&lease).is_some() {
                    self.remember_lost(turn, &lease, end);
                }
                self.lose_term(turn, &lease, end);
                if end != End::Released {
                    self.fail_lost_attempt(turn, &lease, end);
                }
            }
            if let Some(workflow) = self.next_moved() {
                self.advance(turn, workflow);
            } else if self.ended.is_empty() {
                return;
            }
        }
    }

    /// Refuses leases on finished intents, on those whose access list does not allow it, and to agents that are leaving.
    pub(crate) fn admit_documents(&self, request: &Acquire) -> Result<(), Refusal> {
        self.admit_agent(&request.holder)?;
        if request.heeds_lists {
            self.admit_listed(request)?;
        }
        let intents = request.resources.iter().filter_map(|resource| resource.intent());
        let mut finished = intents.filter_map(|id| self.intents.get(id)).filter(|intent| intent.status.is_finished());
        match finished.next() {
            Some(intent) => Err(Refusal::IntentFinished { status: intent.status }),
            None => Ok(()),
        }
    }
}
