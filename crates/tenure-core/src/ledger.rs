//! Owns the rules of leases (R2, L1–L14) and the whole truth in memory.
//!
//! The given `now` is the only time: no rule asks a clock, and a lease is held while `now < expires_at`, whatever the
//! wall says (L4). Before a command is decided everything that is due has lapsed, so no rule ever sees an expired lease.
//!
//! ```text
//!              acquire                 renew, while active
//!   (free) ───────────────► active ──┐◄─────────────┘
//!      ▲        ▲ granted     │      │ release ─► released ─┐
//!      │        │ in order    │      │ ttl over ► expired ──┤ an event each; grace keeps the
//!      │     waiting          │      │ revoke ──► revoked ──┤ resource closed after the last two
//!      └──────────────────────┴──────┴──────────────────────┘
//! ```
//!
//! Invariants, checked by the tests against a naive model:
//! - **I1** no two active leases overlap unless both are shared, or one lives within the other (L1);
//! - **I2** tokens are granted in strictly growing order, through crashes and restores (L2);
//! - **I3** nobody is granted what an older wait, that is not behind the same lease, stands against (L9);
//! - **I4** every wait is answered once, or its client is gone;
//! - **I5** what a ledger opened from the changes would know is what this ledger knows, renewals apart (L13).
//!
//! Does not promise that a paused holder has stopped working: that is what the token is for.

pub mod access;
mod acquire;
pub mod agents;
pub mod assign;
pub mod attempts;
mod conflict;
pub mod coordinators;
mod deadlines;
mod deadlock;
mod flow;
mod holders;
pub mod intents;
mod keep;
mod keys;
mod lost;
mod overlap;
pub mod portfolios;
mod query;
mod queue;
mod recover;
pub mod scopes;
mod settle;
pub mod subscriptions;
mod tasks;
pub mod workflows;
pub mod writes;

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use self::agents::Agents;
use self::conflict::ByMode;
use self::coordinators::Coordinators;
use self::deadlines::Deadlines;
use self::flow::Flows;
use self::holders::Holders;
use self::intents::Intents;
use self::keys::Keys;
use self::lost::Lost;
use self::overlap::OverlapIndex;
use self::portfolios::Portfolios;
use self::queue::Queue;
use self::subscriptions::Subscriptions;
pub use self::tasks::EVALUATOR_QUEUE;
use self::tasks::Tasks;
use self::workflows::Workflows;
use crate::change::{Change, Closure, Head};
use crate::command::{Command, Grant, WaiterId};
use crate::event::Event;
use crate::lease::{End, Lease};
use crate::refusal::Refusal;
use crate::task::command::TaskView;
use crate::{Resource, Timestamp, Token};

/// How many deadlines that renewals have overtaken are moved on at once.
const MOVES_MAX: usize = 1_024;

/// What commands are decided with, and what they leave behind. One turn serves a whole batch.
pub struct Turn<'a> {
    now: Timestamp,
    is_waiting: &'a dyn Fn(WaiterId) -> bool,
    /// What happens to records.
    pub changes: Vec<Change>,
    /// What happened.
    pub events: Vec<Event>,
    /// Waits that were answered.
    pub settled: Vec<(WaiterId, Result<Grant, Refusal>)>,
    /// Polls that waited and were answered.
    pub polled: Vec<(WaiterId, Vec<TaskView>)>,
}

impl<'a> Turn<'a> {
    /// A turn at `now`. `is_waiting` says whether the client of a wait is still there: it is asked before a grant.
    pub fn new(now: Timestamp, is_waiting: &'a dyn Fn(WaiterId) -> bool) -> Turn<'a> {
        Turn { now, is_waiting, changes: Vec::new(), events: Vec::new(), settled: Vec::new(), polled: Vec::new() }
    }

    /// The ledger's time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether its changes must be on disk before anyone is answered: not so for renewals alone (L13).
    pub fn is_durable(&self) -> bool {
        !self.events.is_empty() || self.changes.iter().any(|change| !matches!(change, Change::Renewed(..)))
    }

    fn is_waiting(&self, waiter: WaiterId) -> bool {
        (self.is_waiting)(waiter)
    }
}

/// Who holds what.
#[derive(Default)]
pub struct Ledger {
    head: Head,
    leases: BTreeMap<Token, Lease>,
    /// The resources of active leases.
    held: ByMode,
    /// The leases that live within another, by that other.
    children: HashMap<Token, SmallVec<[Token; 2]>>,
    closures: BTreeMap<Token, Closure>,
    /// The resources of closures.
    closed: OverlapIndex,
    queue: Queue,
    keys: Keys,
    holders: Holders,
    deadlines: Deadlines,
    intents: Intents,
    lost: Lost,
    portfolios: Portfolios,
    agents: Agents,
    coordinators: Coordinators,
    subscriptions: Subscriptions,
    workflows: Workflows,
    /// Leases that ended and that documents have not looked at yet; empty between commands.
    ended: Vec<(Lease, End)>,
    tasks: Tasks,
    flows: Flows,
    /// What became free and has not been offered to those in line yet; empty between commands.
    freed: Vec<Resource>,
}

impl Ledger {
    /// Decides a command, after everything that is due by the turn's time has lapsed.
    pub fn apply<C: Command>(&mut self, turn: &mut Turn<'_>, command: C) -> C::Reply {
        self.head.at = turn.now;
        self.lapse(turn);
        let reply = command.decide(self, turn);
        self.settle(turn);
        self.settle_tasks(turn);
        self.serve_queue(turn);
        self.clear_out_deadlines();
        reply
    }

    /// Where the ledger stands; the batch's number is the engine's to count.
    pub fn head(&self) -> Head {
        self.head
    }

    /// When something lapses next, if nothing is renewed until then; sooner if there is much that was renewed.
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        // Entries that renewals have overtaken are moved on, so that nobody wakes up for nothing; not all if there are many.
        for _ in 0..MOVES_MAX {
            let (at, due) = self.deadlines.peek()?;
            let deadline = self.deadline_of(due);
            if self.deadlines.correct_first(deadline) {
                return Some(at);
            }
        }
        self.deadlines.peek().map(|(at, _)| at)
    }

    /// Lets go of some deadlines that came to nothing.
    fn clear_out_deadlines(&mut self) {
        if !self.deadlines.has_fresh() {
            return;
        }
        let leases = self.leases.len() + self.queue.len() + self.closures.len() + self.keys.len();
        let documents = self.lost.len() + self.intents.retrying() + self.agents.len() + self.coordinators.live();
        let work = self.tasks.all.len() + self.tasks.queues.polls() + self.flows.len();
        let mut deadlines = std::mem::take(&mut self.deadlines);
        deadlines.clear_out(leases + documents + work, |due| self.deadline_of(due));
        self.deadlines = deadlines;
    }

    fn next_token(&mut self) -> Token {
        let token = self.head.token.unwrap_or(Token::start_of(self.head.epoch)).next();
        self.head.token = Some(token);
        token
    }

    fn emit(&mut self, turn: &mut Turn<'_>, event: Event) {
        self.head.cursor = self.head.cursor.next();
        turn.events.push(Event { cursor: self.head.cursor, ..event });
    }
}
