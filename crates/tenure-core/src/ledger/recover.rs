//! Owns the start (L2, L13): a ledger is opened from what the store kept, in a new epoch.
//!
//! Every active lease then runs at least its ttl from the start. A holder that was told «renewed» just before the crash is
//! not expired early though that renewal was never written, and a crash or a restart of Tenure itself expires nobody.

use crate::change::{Head, Record};
use crate::event::{Event, EventKind};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::{Epoch, Token};

impl Ledger {
    /// An empty ledger of this epoch that continues from `head`. Give it every record with [`Ledger::restore`], then
    /// [`Ledger::start`] it. The epoch must be larger than every epoch before, also than those of `head`.
    pub fn open(head: Head, epoch: Epoch) -> Ledger {
        let head = Head { epoch, token: head.token.max(Some(Token::start_of(epoch))), ..head };
        Ledger { head, ..Ledger::default() }
    }

    /// Takes a record back in.
    pub fn restore(&mut self, record: Record) {
        match record {
            Record::Lease(lease) => drop(self.insert_lease(lease)),
            Record::Closure(closure) => self.insert_closure(closure),
            Record::Key(keyed) => {
                if let Some(ended) = &keyed.ended {
                    self.deadlines.push(ended.until, Due::Key(keyed.token));
                }
                self.keys.insert(keyed);
            }
            Record::Lost(mark) => {
                self.deadlines.push(mark.until, Due::Lost(mark.token));
                self.lost.insert(mark);
            }
            Record::Intent(intent) => {
                self.deadlines.extend(intent.attempts.next_at, Due::Retry(intent.id));
                self.intents.put(intent);
            }
            Record::Portfolio(portfolio) => self.portfolios.put(portfolio),
            Record::Agent(agent) => {
                self.deadlines.extend(agent.deadline(), Due::Agent(agent.id));
                self.agents.put(agent);
            }
            Record::Coordinator(term) => {
                self.deadlines.extend(term.deadline(), Due::Coordinator(term.id));
                self.coordinators.put(term);
            }
            Record::Subscription(one) => drop(self.subscriptions.insert(one.id, one)),
            Record::Workflow(workflow) => self.workflows.put(workflow),
            Record::TaskDef(def) => self.restore_task_def(*def),
            Record::FlowDef(def) => self.restore_flow_def(*def),
            Record::Plan(plan) => self.restore_plan(plan),
            Record::FlowKey(kept) => self.restore_flow_key(kept),
            Record::Flow(flow) => self.restore_flow(flow),
            Record::Task(task) => self.restore_task_of_flow(task),
            // Runs that are over stay in the store.
            Record::Archive(_) => {}
        }
    }

    /// Extends every active lease to at least its ttl from now, and says that the ledger is open. The extensions are not
    /// written: the next start would make them longer anyway.
    pub fn start(&mut self, turn: &mut Turn<'_>) {
        for lease in self.leases.values_mut() {
            let at_least = turn.now.plus_ms(lease.ttl.ms());
            lease.expires_at = lease.expires_at.max(at_least);
        }
        // Nobody could be heard while the ledger was closed.
        self.agents.see_all(turn.now());
        self.coordinators.see_all(turn.now());
        self.forget_all_terms(turn);
        let said = format!("epoch {}, {} active leases", self.head.epoch.0, self.leases.len());
        let opened = Event { reason: Some(said.into()), ..Event::new(EventKind::LedgerOpened, turn.now()) };
        self.emit(turn, opened);
        self.start_tasks(turn);
        self.head.at = turn.now();
    }
}
