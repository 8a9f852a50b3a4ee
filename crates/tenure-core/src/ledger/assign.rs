//! Owns who works on what: assignments, and that every one of them reaches its agent.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Cursor, Event, EventKind};
use crate::intent::{Assignment, Intent};
use crate::ledger::intents::whole;
use crate::ledger::{Ledger, Turn};
use crate::limits::ASSIGNED_MAX;
use crate::serial::{IntentId, PortfolioId};
use crate::{Holder, Timestamp};

/// Put an agent on an intent. Again, if it is on it already: the agent is told again.
#[derive(Debug, Clone)]
pub struct Assign {
    /// Which intent.
    pub id: IntentId,
    /// Who does it.
    pub caller: Caller,
    /// Who is assigned.
    pub agent: Holder,
    /// As what.
    pub role: Box<str>,
    /// Who passes the work on, if someone does.
    pub delegated_by: Option<Holder>,
}

impl Command for Assign {
    type Reply = Result<Assignment, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        if intent.status.is_finished() {
            return Err(Refusal::Finished(intent.status));
        }
        if intent.assigned.len() >= ASSIGNED_MAX && intent.assignment(&self.agent).is_none() {
            return Err(Refusal::Limit { what: "the number of agents on one intent", max: ASSIGNED_MAX });
        }
        let assignment = ledger.assignment(turn, self.agent, self.role, self.delegated_by);
        ledger.assign(turn, &intent, assignment.clone(), &self.caller.holder);
        Ok(assignment)
    }
}

impl Ledger {
    /// An assignment that the next event tells of.
    pub(crate) fn assignment(
        &self,
        turn: &Turn<'_>,
        agent: Holder,
        role: Box<str>,
        delegated_by: Option<Holder>,
    ) -> Assignment {
        Assignment { agent, role, at: turn.now(), cursor: self.head.cursor.next(), told: false, delegated_by }
    }

    /// Assigns, or assigns again.
    pub(crate) fn assign(&mut self, turn: &mut Turn<'_>, intent: &Intent, new: Assignment, by: &Holder) -> Arc<Intent> {
        let mut changed = intent.clone();
        changed.assigned.retain(|assignment| assignment.agent != new.agent);
        changed.assigned.push(new.clone());
        let changed = self.put_intent(turn, changed);
        let said = announcement(&changed, &new);
        let event = Event::about(EventKind::IntentAssigned, turn.now(), whole(changed.id), said);
        self.emit(turn, Event { holder: Some(new.agent), by: Some(by.clone()), ..event });
        changed
    }
}

/// What an agent is told about an assignment.
pub fn announcement(intent: &Intent, assignment: &Assignment) -> Value {
    let mut said = Map::new();
    said.insert("role".to_owned(), json!(assignment.role));
    if intent.attempts.failed > 0 {
        said.insert("retry_attempt".to_owned(), json!(intent.attempts.failed));
        said.insert("last_error".to_owned(), json!(intent.attempts.last_error));
    }
    if let Some(by) = &assignment.delegated_by {
        said.insert("delegated_by".to_owned(), json!(by));
    }
    Value::Object(said)
}

/// Take an agent off an intent.
#[derive(Debug, Clone)]
pub struct Unassign {
    /// Which intent.
    pub id: IntentId,
    /// Who does it.
    pub caller: Caller,
    /// Who is taken off.
    pub agent: Holder,
}

impl Command for Unassign {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        if intent.assignment(&self.agent).is_none() {
            return Err(Refusal::unknown("assignment of", &self.agent));
        }
        let mut changed = Intent::clone(&intent);
        changed.assigned.retain(|assignment| assignment.agent != self.agent);
        let changed = ledger.put_intent(turn, changed);
        let event = Event::about(EventKind::IntentUnassigned, turn.now(), whole(self.id), json!({}));
        ledger.emit(turn, Event { holder: Some(self.agent), by: Some(self.caller.holder), ..event });
        Ok(changed)
    }
}

/// What an agent that connects has to be told: assignments it has not been sent, and steps of workflows it was sent but has
/// not begun.
#[derive(Debug, Clone)]
pub struct Untold {
    /// Which agent.
    pub agent: Holder,
}

/// The answer to [`Untold`].
#[derive(Debug, Clone)]
pub struct Assignments {
    /// The intents to tell about, the oldest first.
    pub intents: Vec<Arc<Intent>>,
    /// The last event when this was so.
    pub cursor: Cursor,
}

impl Command for Untold {
    type Reply = Assignments;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Assignments {
        // While another attempt is waited for there is nothing to tell: its time brings a new assignment.
        let open = |intent: &&Arc<Intent>| !intent.status.is_finished() && intent.attempts.next_at.is_none();
        let waiting = ledger.intents.of_agent(&self.agent).filter(open).filter(|intent| {
            let is_told = intent.assignment(&self.agent).is_some_and(|assignment| assignment.told);
            let is_idle = || ledger.leases_on(intent.id, &self.agent).next().is_none();
            !is_told || (intent.workflow.is_some() && is_idle())
        });
        Assignments { intents: waiting.cloned().collect(), cursor: ledger.head.cursor }
    }
}

/// An agent has been sent these assignments.
#[derive(Debug, Clone)]
pub struct Told {
    /// Which agent.
    pub agent: Holder,
    /// Which intents.
    pub intents: Vec<IntentId>,
    /// As of this event; what was assigned again after it has not been sent.
    pub cursor: Cursor,
}

impl Command for Told {
    type Reply = ();

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) {
        for id in self.intents {
            let Some(intent) = ledger.intents.get(id) else { continue };
            let is_news = |assignment: &Assignment| !assignment.told && assignment.cursor <= self.cursor;
            if !intent.assignment(&self.agent).is_some_and(is_news) {
                continue;
            }
            let mut changed = Intent::clone(intent);
            for assignment in changed.assigned.iter_mut().filter(|assignment| assignment.agent == self.agent) {
                assignment.told = true;
            }
            ledger.put_intent(turn, changed);
        }
    }
}

/// Who is to hear about these intents.
#[derive(Debug, Clone)]
pub struct Audience(pub Vec<IntentId>);

/// Who is to hear about one intent.
#[derive(Debug, Clone)]
pub struct Hearers {
    /// Which.
    pub intent: IntentId,
    /// The agents assigned to it.
    pub agents: Vec<Holder>,
    /// The portfolios it is in.
    pub portfolios: Vec<PortfolioId>,
    as_it_is: Arc<Intent>,
    at: Timestamp,
}

impl Hearers {
    /// Whether one who follows it, or a portfolio it is in, may hear about it now.
    pub fn include(&self, follower: &Caller) -> bool {
        self.as_it_is.allows(follower, Permission::Read, self.at)
    }
}

impl Command for Audience {
    type Reply = Vec<Hearers>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Vec<Hearers> {
        let hearers = self.0.into_iter().filter_map(|id| {
            let intent = ledger.intents.get(id)?;
            let agents = intent.assigned.iter().map(|assignment| assignment.agent.clone()).collect();
            let portfolios = ledger.portfolios.of_intent(id).to_vec();
            Some(Hearers { intent: id, agents, portfolios, as_it_is: Arc::clone(intent), at: turn.now() })
        });
        hearers.collect()
    }
}
