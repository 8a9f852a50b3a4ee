//! Owns the writes to an intent (D1, D2): state, status, dependencies and notes.
//!
//! A write names the version it read, or says that any will do. A part of the state that someone else holds is closed to
//! everyone but the holder, whatever version they name; a writer whose own lease on that part was lost is told so until it
//! holds the part again. A part that nobody holds is open, also to one that has just given it back.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::intent::{Intent, Status};
use crate::ledger::intents::{check_dependencies, whole};
use crate::ledger::{Ledger, Turn};
use crate::limits::PATCHES_MAX;
use crate::patch::{self, Patch, PatchOp, State};
use crate::serial::IntentId;
use crate::{Holder, Resource, Token};

/// Which version a write is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// This one.
    Version(u64),
    /// Whatever it is.
    Any,
}

impl Expected {
    fn check(self, intent: &Intent) -> Result<(), Refusal> {
        match self {
            Expected::Version(version) if version != intent.version => Err(Refusal::Stale { current: intent.version }),
            _ => Ok(()),
        }
    }
}

/// Change parts of the state, all or none.
#[derive(Debug, Clone)]
pub struct PatchState {
    /// Of which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// Based on which version.
    pub expected: Expected,
    /// What.
    pub patches: Vec<Patch>,
    /// The patches as they came, for the event.
    pub told: Value,
    /// A lease the write relies on.
    pub lease: Option<Token>,
}

impl Command for PatchState {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        if self.patches.len() > PATCHES_MAX {
            return Err(Refusal::Limit { what: "the number of patches in one write", max: PATCHES_MAX });
        }
        let writer = &self.caller.holder;
        ledger.check_relied_on(self.id, writer, self.lease)?;
        for patch in &self.patches {
            ledger.check_guard(self.id, patch.path.scope(), writer)?;
        }
        self.expected.check(&intent)?;
        let keys: Vec<String> = self.patches.iter().map(|patch| patch.path.scope().to_owned()).collect();
        let state = patch::apply(&intent.state, self.patches)?;
        let (old, new) = (parts(&intent.state, &keys), parts(&state, &keys));
        let changed = ledger.change_intent(turn, &intent, |intent| intent.state = state);
        let said = json!({ "patches": self.told, "version": changed.version, "old": old, "new": new });
        ledger.tell(turn, EventKind::IntentPatched, &changed, writer, said);
        Ok(changed)
    }
}

/// These parts of a state.
fn parts(state: &State, keys: &[String]) -> Map<String, Value> {
    keys.iter().filter_map(|key| Some((key.clone(), state.get(key)?.clone()))).collect()
}

impl Patch {
    /// Sets a part of the state.
    pub fn set(path: patch::PatchPath, value: Value) -> Patch {
        Patch { path, op: PatchOp::Set(value) }
    }
}

impl Ledger {
    /// The same intent with a change, one version later.
    pub(crate) fn change_intent(
        &mut self,
        turn: &mut Turn<'_>,
        intent: &Intent,
        change: impl FnOnce(&mut Intent),
    ) -> Arc<Intent> {
        let mut changed = intent.clone();
        change(&mut changed);
        changed.version += 1;
        changed.updated_at = turn.now();
        self.put_intent(turn, changed)
    }

    /// Refuses a write into a part that someone else holds, or that the writer has lost.
    fn check_guard(&self, id: IntentId, scope: &str, writer: &Holder) -> Result<(), Refusal> {
        let Some(whole) = whole(id) else { return Ok(()) };
        // A key that is no possible scope can only be guarded by a lease on everything.
        let part = Resource::parse(&format!("intent:{id}/{scope}"));
        let (resource, ids) = match &part {
            Ok(part) => (part, self.tokens_over(part)),
            Err(_) => (&whole, self.tokens_at(&whole)),
        };
        let mut is_holder = false;
        for token in ids {
            match self.leases.get(&token) {
                Some(lease) if lease.holder == *writer => is_holder = true,
                Some(lease) => {
                    let lease = Box::new(lease.clone());
                    return Err(Refusal::Guarded { resource: resource.clone(), lease });
                }
                None => {}
            }
        }
        match self.lost.find(writer, resource) {
            Some(lost) if !is_holder => Err(Refusal::Late { holder: writer.clone(), resource: lost.clone() }),
            _ => Ok(()),
        }
    }

    /// Refuses a write that relies on a lease that is over, someone else's, or about something else.
    fn check_relied_on(&self, id: IntentId, writer: &Holder, lease: Option<Token>) -> Result<(), Refusal> {
        let (Some(token), Some(whole)) = (lease, whole(id)) else { return Ok(()) };
        match self.leases.get(&token) {
            Some(lease) if lease.holder != *writer => Err(Refusal::NotYours { owner: lease.holder.clone() }),
            Some(lease) if lease.resources.iter().any(|held| whole.covers(held)) => Ok(()),
            _ => Err(Refusal::Late { holder: writer.clone(), resource: whole }),
        }
    }
}

/// Move an intent to another status.
#[derive(Debug, Clone)]
pub struct SetStatus {
    /// Which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// Based on which version.
    pub expected: Expected,
    /// To which status.
    pub status: Status,
    /// Why.
    pub reason: Option<Box<str>>,
}

impl Command for SetStatus {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        self.expected.check(&intent)?;
        if !intent.status.may_become(self.status) {
            return Err(Refusal::Transition { from: intent.status, to: self.status });
        }
        Ok(ledger.set_status(turn, &intent, self.status, &self.caller.holder, self.reason))
    }
}

impl Ledger {
    pub(crate) fn set_status(
        &mut self,
        turn: &mut Turn<'_>,
        intent: &Intent,
        status: Status,
        by: &Holder,
        reason: Option<Box<str>>,
    ) -> Arc<Intent> {
        let old = intent.status;
        let changed = self.change_intent(turn, intent, |intent| {
            intent.status = status;
            if status.is_finished() {
                intent.attempts.next_at = None;
            }
        });
        let said = json!({ "status": status.as_str(), "old_status": old.as_str(), "version": changed.version });
        let event = Event::about(EventKind::IntentStatusChanged, turn.now(), whole(intent.id), said);
        self.emit(turn, Event { by: Some(by.clone()), reason, ..event });
        if let Some(workflow) = changed.workflow {
            self.advance_soon(workflow);
        }
        changed
    }
}

/// Add or remove something that comes first.
#[derive(Debug, Clone)]
pub struct SetDependency {
    /// Of which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// Based on which version.
    pub expected: Expected,
    /// What comes first.
    pub first: IntentId,
    /// From now on, or no longer.
    pub present: bool,
}

impl Command for SetDependency {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        self.expected.check(&intent)?;
        let has = intent.depends_on.contains(&self.first);
        if self.present {
            ledger.intents.find(self.first)?;
            check_dependencies(intent.depends_on.len() + 1)?;
            if ledger.intents.comes_before(self.id, self.first)? {
                let said =
                    format!("{} comes before {}, directly or not, so it cannot wait for it", self.id, self.first);
                return Err(Refusal::Senseless(said));
            }
        } else if !has {
            return Err(Refusal::unknown("dependency", self.first));
        }
        let changed = ledger.change_intent(turn, &intent, |intent| {
            intent.depends_on.retain(|first| *first != self.first);
            if self.present {
                intent.depends_on.push(self.first);
            }
        });
        let kind = if self.present { EventKind::IntentDependencyAdded } else { EventKind::IntentDependencyRemoved };
        let said = json!({ "dependency_id": self.first, "version": changed.version });
        ledger.tell(turn, kind, &changed, &self.caller.holder, said);
        Ok(changed)
    }
}

/// Note something in the log of an intent: said by a client, not by the ledger.
#[derive(Debug, Clone)]
pub struct Note {
    /// Of which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// What, as the door reads it back.
    pub said: Value,
}

impl Command for Note {
    type Reply = Result<Event, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        let event = Event::about(EventKind::IntentNoted, turn.now(), whole(intent.id), self.said);
        let event = Event { by: Some(self.caller.holder), ..event };
        ledger.emit(turn, event.clone());
        Ok(Event { cursor: ledger.head.cursor, ..event })
    }
}
