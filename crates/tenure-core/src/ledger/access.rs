//! Owns changes to who may do what with an intent, and what those see who may not read one. Only those with the admin
//! permission decide; anyone may ask.

use std::collections::BTreeSet;

use serde_json::json;

use crate::access::{Access, AccessRequest, Caller, Entry, Permission, Policy, RequestStatus};
use crate::command::{Acquire, Command};
use crate::document::Refusal;
use crate::event::EventKind;
use crate::intent::Intent;
use crate::ledger::{Ledger, Turn};
use crate::limits::ACCESS_ENTRIES_MAX;
use crate::serial::{AccessId, IntentId};
use crate::{Holder, Resource, Timestamp, refusal};

/// What is granted to whom.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// Who.
    pub principal: Holder,
    /// What kind of principal.
    pub principal_type: Box<str>,
    /// May do what.
    pub permission: Permission,
    /// Until when.
    pub expires_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<Box<str>>,
}

/// What to do with an access list.
#[derive(Debug, Clone)]
pub enum AccessChange {
    /// A new list.
    Replace(Policy, Vec<NewEntry>),
    /// One more entry.
    Grant(NewEntry),
    /// One entry less.
    Revoke(AccessId),
    /// Someone asks to be put on it.
    Request(NewEntry, Vec<Box<str>>),
    /// A request is granted, with another permission or end than asked for if given.
    Approve(AccessId, Option<Permission>, Option<Timestamp>, Option<Box<str>>),
    /// A request is not granted.
    Deny(AccessId, Option<Box<str>>),
}

/// Change the access list of an intent, or ask for it.
#[derive(Debug, Clone)]
pub struct ChangeAccess {
    /// Of which intent.
    pub id: IntentId,
    /// Who.
    pub caller: Caller,
    /// What.
    pub change: AccessChange,
}

/// The list as it is now, and the id of what was added or decided.
#[derive(Debug, Clone)]
pub struct AccessChanged {
    /// The list.
    pub access: Access,
    /// The entry or request it was about.
    pub id: Option<AccessId>,
}

impl Command for ChangeAccess {
    type Reply = Result<AccessChanged, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let needs = match self.change {
            AccessChange::Request(..) => None,
            _ => Some(Permission::Admin),
        };
        let intent = match needs {
            Some(needs) => ledger.open_intent(turn, self.id, &self.caller, needs)?,
            // Those who may not even read must be able to ask.
            None => ledger.intents.find(self.id)?.clone(),
        };
        ledger.change_access(turn, &intent, self.change, &self.caller.holder)
    }
}

impl Ledger {
    /// One event for every entry: the event's place is the entry's id.
    fn change_access(
        &mut self,
        turn: &mut Turn<'_>,
        intent: &Intent,
        mut change: AccessChange,
        by: &Holder,
    ) -> Result<AccessChanged, Refusal> {
        let entries = match &mut change {
            AccessChange::Replace(_, entries) => std::mem::take(entries),
            _ => Vec::new(),
        };
        check_entries(entries.len())?;
        let id = AccessId(self.serial());
        let mut changed = intent.clone();
        let (about, what) = edit(&mut changed.access, change, id, by, turn.now())?;
        check_entries(changed.access.entries.len().max(changed.access.requests.len()))?;
        let changed = self.put_intent(turn, changed);
        self.tell(turn, EventKind::IntentAccessChanged, &changed, by, json!({ "what": what, "id": about }));
        let mut done = AccessChanged { access: changed.access.clone(), id: about };
        let mut latest = changed;
        for new in entries {
            done = self.change_access(turn, &latest, AccessChange::Grant(new), by)?;
            latest = self.intents.find(intent.id)?.clone();
        }
        Ok(done)
    }
}

fn check_entries(count: usize) -> Result<(), Refusal> {
    if count > ACCESS_ENTRIES_MAX {
        return Err(Refusal::Limit {
            what: "the number of entries or requests of an access list",
            max: ACCESS_ENTRIES_MAX,
        });
    }
    Ok(())
}

/// Changes the list; says what it was about and what happened.
fn edit(
    access: &mut Access,
    change: AccessChange,
    id: AccessId,
    by: &Holder,
    now: Timestamp,
) -> Result<(Option<AccessId>, &'static str), Refusal> {
    Ok(match change {
        AccessChange::Replace(policy, _) => {
            access.policy = policy;
            access.entries.clear();
            (None, "access_policy_set")
        }
        AccessChange::Grant(new) => {
            access.entries.push(entry(new, id, by, now));
            (Some(id), "access_granted")
        }
        AccessChange::Revoke(gone) => {
            if !access.entries.iter().any(|entry| entry.id == gone) {
                return Err(Refusal::unknown("access entry", gone));
            }
            access.entries.retain(|entry| entry.id != gone);
            (Some(gone), "access_revoked")
        }
        AccessChange::Request(new, capabilities) => {
            access.requests.push(request(new, capabilities, id, now));
            (Some(id), "access_requested")
        }
        AccessChange::Approve(of, permission, expires_at, reason) => {
            let asked = decide(access, of, RequestStatus::Approved, reason.clone(), by, now)?;
            let new = NewEntry {
                principal: asked.principal,
                principal_type: asked.principal_type,
                permission: permission.unwrap_or(asked.permission),
                expires_at,
                reason,
            };
            access.entries.push(entry(new, id, by, now));
            (Some(of), "access_request_approved")
        }
        AccessChange::Deny(of, reason) => {
            decide(access, of, RequestStatus::Denied, reason, by, now)?;
            (Some(of), "access_request_denied")
        }
    })
}

fn entry(new: NewEntry, id: AccessId, by: &Holder, now: Timestamp) -> Entry {
    Entry {
        id,
        principal: new.principal,
        principal_type: new.principal_type,
        permission: new.permission,
        granted_by: by.clone(),
        granted_at: now,
        expires_at: new.expires_at,
        reason: new.reason,
    }
}

fn request(new: NewEntry, capabilities: Vec<Box<str>>, id: AccessId, now: Timestamp) -> AccessRequest {
    AccessRequest {
        id,
        principal: new.principal,
        principal_type: new.principal_type,
        permission: new.permission,
        reason: new.reason.unwrap_or_default(),
        capabilities,
        status: RequestStatus::Pending,
        created_at: now,
        decided_by: None,
        decided_at: None,
        decision_reason: None,
    }
}

fn decide(
    access: &mut Access,
    id: AccessId,
    status: RequestStatus,
    reason: Option<Box<str>>,
    by: &Holder,
    now: Timestamp,
) -> Result<AccessRequest, Refusal> {
    let request = access.requests.iter_mut().find(|request| request.id == id);
    let request = request.ok_or_else(|| Refusal::unknown("access request", id))?;
    if request.status != RequestStatus::Pending {
        return Err(Refusal::Over { what: "access request", how: "decided" });
    }
    request.status = status;
    request.decided_by = Some(by.clone());
    request.decided_at = Some(now);
    request.decision_reason = reason;
    Ok(request.clone())
}

/// Ask what a caller may see of what happens to these intents.
#[derive(Debug, Clone)]
pub struct Look {
    /// Who.
    pub caller: Caller,
    /// Which intents.
    pub intents: Vec<IntentId>,
}

/// What somebody may see: everything but what is about intents that it may not read. Its own leases on them it may.
#[derive(Debug, Clone, Default)]
pub struct Sight {
    holder: Option<Holder>,
    hidden: BTreeSet<IntentId>,
}

impl Command for Look {
    type Reply = Sight;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Sight {
        let is_hidden = |id: &IntentId| {
            let intent = ledger.intents.get(*id);
            intent.is_some_and(|intent| !intent.allows(&self.caller, Permission::Read, turn.now()))
        };
        let hidden = self.intents.into_iter().filter(is_hidden).collect();
        Sight { holder: Some(self.caller.holder), hidden }
    }
}

impl Sight {
    /// Whether it shows a lease or an event that is about these resources and this holder.
    pub fn shows(&self, resources: &[Resource], holder: Option<&Holder>) -> bool {
        self.check(resources, holder).is_ok()
    }

    /// The same, with the reason.
    pub fn check(&self, resources: &[Resource], holder: Option<&Holder>) -> Result<(), refusal::Refusal> {
        match (self.hides(resources), &self.holder) {
            (Some(intent), Some(own)) if holder != Some(own) => {
                Err(refusal::Refusal::NotAllowed { holder: own.clone(), intent, needs: Permission::Read })
            }
            _ => Ok(()),
        }
    }

    fn hides(&self, resources: &[Resource]) -> Option<IntentId> {
        // Most see everything: nothing is read then.
        if self.hidden.is_empty() {
            return None;
        }
        resources.iter().filter_map(Resource::listed_under).find(|id| self.hidden.contains(id))
    }
}

impl Ledger {
    /// Refuses leases on intents whose access list does not let the holder write.
    pub(crate) fn admit_listed(&self, request: &Acquire) -> Result<(), refusal::Refusal> {
        let needs = Permission::Write;
        let caller = Caller { holder: request.holder.clone(), is_admin: false };
        for id in request.resources.iter().filter_map(Resource::listed_under) {
            if self.intents.get(id).is_some_and(|intent| !intent.allows(&caller, needs, self.head.at)) {
                return Err(refusal::Refusal::NotAllowed { holder: caller.holder, intent: id, needs });
            }
        }
        Ok(())
    }
}
