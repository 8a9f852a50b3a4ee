//! Owns the lives of registered agents: registration, heartbeats, silence and death. Death ends every lease of the agent, in
//! the same commit.
//!
//! A heartbeat is kept in memory only. An outage of Tenure itself kills nobody: a ledger that starts counts silence from
//! there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::agent::{Agent, AgentStatus, Pulse};
use crate::change::{Change, Record};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::lease::End;
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::{AGENTS_MAX, PAGE_MAX};
use crate::patch::check_size;
use crate::serial::AgentId;
use crate::{Holder, Resource, Timestamp};

/// Every registered agent.
#[derive(Default)]
pub(crate) struct Agents {
    by_id: BTreeMap<AgentId, Arc<Agent>>,
    by_name: HashMap<Holder, AgentId>,
}

impl Agents {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn named(&self, name: &Holder) -> Option<&Arc<Agent>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    pub(crate) fn deadline(&self, id: AgentId) -> Option<Timestamp> {
        self.by_id.get(&id)?.deadline()
    }

    pub(crate) fn put(&mut self, agent: Arc<Agent>) {
        self.by_name.insert(agent.name.clone(), agent.id);
        self.by_id.insert(agent.id, agent);
    }

    /// Everyone alive has just been seen.
    pub(crate) fn see_all(&mut self, now: Timestamp) {
        for agent in self.by_id.values_mut() {
            let agent = Arc::make_mut(agent);
            agent.seen_at = agent.seen_at.max(now);
            agent.drained_by = agent.drained_by.map(|at| at.max(agent.drained_after(now).unwrap_or(at)));
        }
    }
}

/// Who speaks for an agent: its name, and a digest of the credential it came with.
#[derive(Debug, Clone)]
pub struct Speaker {
    /// The agent.
    pub name: Holder,
    /// The credential, if any.
    pub credential: Option<Box<str>>,
    /// An administrator may speak for everyone.
    pub is_admin: bool,
}

impl Speaker {
    fn check(&self, agent: &Agent) -> Result<(), Refusal> {
        let is_bound = agent.credential.is_some() && agent.credential != self.credential;
        if is_bound && !self.is_admin { Err(Refusal::OtherCredential(agent.name.clone())) } else { Ok(()) }
    }
}

/// Register an agent; one that is dead or has left comes back to life.
#[derive(Debug, Clone)]
pub struct Register {
    /// Who.
    pub speaker: Speaker,
    /// What it says about itself.
    pub profile: Map<String, Value>,
    /// How often it will beat.
    pub pulse: Pulse,
    /// How long it has to finish once it drains.
    pub drain_ms: Option<u64>,
}

impl Command for Register {
    type Reply = Result<Arc<Agent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let known = ledger.agents.named(&self.speaker.name).cloned();
        if let Some(known) = &known {
            self.speaker.check(known)?;
            if !known.status.is_gone() {
                return Err(Refusal::Registered(known.name.clone()));
            }
        } else if ledger.agents.len() >= AGENTS_MAX {
            return Err(Refusal::Limit { what: "the number of registered agents", max: AGENTS_MAX });
        }
        let agent = Agent {
            id: known.as_ref().map_or(AgentId(ledger.serial()), |known| known.id),
            name: self.speaker.name,
            status: AgentStatus::Active,
            profile: check_size(self.profile)?,
            pulse: self.pulse,
            registered_at: turn.now(),
            seen_at: turn.now(),
            has_beaten: false,
            version: known.as_ref().map_or(1, |known| known.version + 1),
            drain_ms: self.drain_ms,
            drained_by: None,
            credential: self.speaker.credential,
        };
        let old = known.map(|known| known.status);
        Ok(ledger.put_agent(turn, agent, EventKind::AgentRegistered, old, None))
    }
}

/// A sign of life.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Who.
    pub speaker: Speaker,
}

impl Command for Beat {
    type Reply = Result<Arc<Agent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let agent = ledger.speak_for(&self.speaker)?;
        if agent.status.is_gone() {
            return Err(Refusal::Gone { name: agent.name.clone(), status: agent.status });
        }
        let seen = Agent { seen_at: turn.now(), has_beaten: true, ..Agent::clone(&agent) };
        match agent.status {
            AgentStatus::Unhealthy | AgentStatus::Registering => {
                Ok(ledger.move_agent(turn, &seen, AgentStatus::Active, None))
            }
            _ => {
                let seen = Arc::new(seen);
                ledger.agents.put(Arc::clone(&seen));
                Ok(seen)
            }
        }
    }
}

/// Move an agent to another status.
#[derive(Debug, Clone)]
pub struct MoveAgent {
    /// Who.
    pub speaker: Speaker,
    /// To which.
    pub status: AgentStatus,
}

impl Command for MoveAgent {
    type Reply = Result<Arc<Agent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let agent = ledger.speak_for(&self.speaker)?;
        if agent.status.is_gone() {
            return Err(Refusal::Gone { name: agent.name.clone(), status: agent.status });
        }
        let drained_by = match (agent.status, self.status) {
            // Saying it again gives no more time.
            (AgentStatus::Draining, AgentStatus::Draining) => agent.drained_by,
            (_, AgentStatus::Draining) => agent.drained_after(turn.now()),
            _ => None,
        };
        let seen = Agent { seen_at: turn.now(), drained_by, ..Agent::clone(&agent) };
        let reason = self.status.is_gone().then(|| format!("the agent is {}", self.status.as_str()));
        Ok(ledger.move_agent(turn, &seen, self.status, reason))
    }
}

impl Ledger {
    fn speak_for(&self, speaker: &Speaker) -> Result<Arc<Agent>, Refusal> {
        let agent = self.agents.named(&speaker.name).ok_or_else(|| Refusal::unknown("agent", &speaker.name))?;
        speaker.check(agent)?;
        Ok(Arc::clone(agent))
    }

    fn move_agent(
        &mut self,
        turn: &mut Turn<'_>,
        agent: &Agent,
        status: AgentStatus,
        reason: Option<String>,
    ) -> Arc<Agent> {
        let drained_by = agent.drained_by.filter(|_| status == AgentStatus::Draining);
        let moved = Agent { status, drained_by, version: agent.version + 1, ..agent.clone() };
        let moved = self.put_agent(turn, moved, EventKind::AgentStatusChanged, Some(agent.status), reason.clone());
        if status.is_gone() {
            let why = reason.unwrap_or_else(|| format!("the agent is {}", status.as_str()));
            self.end_all_of(turn, &moved.name, &why);
        }
        moved
    }

    fn put_agent(
        &mut self,
        turn: &mut Turn<'_>,
        agent: Agent,
        kind: EventKind,
        old: Option<AgentStatus>,
        reason: Option<String>,
    ) -> Arc<Agent> {
        let agent = Arc::new(agent);
        turn.changes.push(Change::Put(Record::Agent(Arc::clone(&agent))));
        self.agents.put(Arc::clone(&agent));
        if let Some(at) = agent.deadline() {
            self.deadlines.push_again(at, Due::Agent(agent.id));
        }
        let said = json!({ "status": agent.status, "old_status": old, "version": agent.version });
        let resource = Resource::parse(&format!("agent:{}", agent.name)).ok();
        let event = Event::about(kind, turn.now(), resource, said);
        self.emit(turn, Event { holder: Some(agent.name.clone()), reason: reason.map(Into::into), ..event });
        agent
    }

    /// Silence has lasted: unhealthy first, then dead. Or the time to drain is over.
    pub(crate) fn silence_agent(&mut self, turn: &mut Turn<'_>, id: AgentId) {
        let Some(agent) = self.agents.by_id.get(&id).cloned() else { return };
        if agent.drained_by.is_some_and(|at| at <= turn.now()) {
            let reason = "its time to drain is over".to_owned();
            self.move_agent(turn, &agent, AgentStatus::Deregistered, Some(reason));
            return;
        }
        let silent = turn.now().ms_since(agent.seen_at);
        let status = match agent.status {
            _ if silent >= agent.pulse.dead_after_ms => AgentStatus::Dead,
            AgentStatus::Draining => return,
            _ => AgentStatus::Unhealthy,
        };
        self.move_agent(turn, &agent, status, Some(format!("silent for {} s", silent / 1_000)));
    }

    /// Ends every lease of a holder.
    fn end_all_of(&mut self, turn: &mut Turn<'_>, holder: &Holder, why: &str) {
        let tokens: Vec<_> = self.holders.get(holder).map_or_else(Vec::new, |holdings| holdings.leases.to_vec());
        for token in tokens {
            self.end_because(turn, token, End::Expired, why);
        }
    }

    /// Refuses leases to agents that are leaving or gone.
    pub(crate) fn admit_agent(&self, holder: &Holder) -> Result<(), crate::refusal::Refusal> {
        match self.agents.named(holder).map(|agent| agent.status) {
            Some(status) if !status.takes_leases() => {
                Err(crate::refusal::Refusal::AgentLeaving { holder: holder.clone(), status })
            }
            _ => Ok(()),
        }
    }
}

/// Look an agent up.
#[derive(Debug, Clone)]
pub struct GetAgent(pub Holder);

impl Command for GetAgent {
    type Reply = Result<Arc<Agent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Self::Reply {
        ledger.agents.named(&self.0).cloned().ok_or_else(|| Refusal::unknown("agent", &self.0))
    }
}

/// List agents, in the order of their registration.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListAgents {
    /// Only those that stand so.
    pub status: Option<AgentStatus>,
}

impl Command for ListAgents {
    type Reply = Vec<Arc<Agent>>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Self::Reply {
        let all = ledger.agents.by_id.values();
        all.filter(|agent| self.status.is_none_or(|status| agent.status == status)).take(PAGE_MAX).cloned().collect()
    }
}
