//! Owns the terms of coordinators: one at a time for an intent or a portfolio, kept by heartbeats, lost by silence. Of those
//! that are over the latest few are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::change::{Change, Record, RecordKind};
use crate::command::{Acquire, Acquired, Command};
use crate::coordinator::{Coordinator, Led, TermStatus};
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::lease::{End, Lease};
use crate::ledger::deadlines::Due;
use crate::ledger::{Ledger, Turn};
use crate::limits::ENDED_TERMS_KEPT_MAX;
use crate::serial::{CoordinatorId, IntentId};
use crate::{Holder, Timestamp, Token, Ttl};

/// Every term that is kept, and the leases under the live ones.
#[derive(Default)]
pub(crate) struct Coordinators {
    by_id: BTreeMap<CoordinatorId, Arc<Coordinator>>,
    /// Ids grow with time, so the first is the oldest.
    by_led: HashMap<Led, BTreeSet<CoordinatorId>>,
    by_lease: HashMap<Token, CoordinatorId>,
}

impl Coordinators {
    /// How many are live.
    pub(crate) fn live(&self) -> usize {
        self.by_lease.len()
    }

    pub(crate) fn find(&self, id: CoordinatorId) -> Result<&Arc<Coordinator>, Refusal> {
        self.by_id.get(&id).ok_or_else(|| Refusal::unknown("coordinator", id))
    }

    pub(crate) fn deadline(&self, id: CoordinatorId) -> Option<Timestamp> {
        self.by_id.get(&id)?.deadline()
    }

    pub(crate) fn put(&mut self, term: Arc<Coordinator>) {
        match term.status.is_over() {
            true => drop(self.by_lease.remove(&term.lease)),
            false => drop(self.by_lease.insert(term.lease, term.id)),
        }
        self.by_led.entry(term.led).or_default().insert(term.id);
        self.by_id.insert(term.id, term);
    }

    fn remove(&mut self, id: CoordinatorId) {
        let Some(term) = self.by_id.remove(&id) else { return };
        if let Some(ids) = self.by_led.get_mut(&term.led) {
            ids.remove(&id);
        }
    }

    /// The terms of one intent or portfolio, the oldest first.
    fn of(&self, led: Led) -> impl Iterator<Item = &Arc<Coordinator>> {
        self.by_led.get(&led).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    /// Those that are over and too many, the oldest.
    fn too_many(&self, led: Led) -> Vec<CoordinatorId> {
        let ended: Vec<_> = self.of(led).filter(|term| term.status.is_over()).map(|term| term.id).collect();
        let keep = ended.len().min(ENDED_TERMS_KEPT_MAX);
        ended.into_iter().rev().skip(keep).collect()
    }

    /// Everyone has just been seen.
    pub(crate) fn see_all(&mut self, now: Timestamp) {
        for id in self.by_lease.values() {
            if let Some(term) = self.by_id.get_mut(id) {
                Arc::make_mut(term).seen_at = term.seen_at.max(now);
            }
        }
    }
}

/// Become the coordinator of something.
#[derive(Debug, Clone)]
pub struct Coordinate {
    /// Of what.
    pub led: Led,
    /// Who asks.
    pub caller: Caller,
    /// Who is to be it.
    pub agent: Holder,
    /// Who is asked when it does not answer.
    pub supervisor: Holder,
    /// As what.
    pub role: Box<str>,
    /// What kind of coordinator.
    pub kind: Box<str>,
    /// How long it lasts without a heartbeat.
    pub ttl: Ttl,
    /// How often it will beat.
    pub interval_ms: u64,
    /// The end that no heartbeat moves.
    pub until: Option<Timestamp>,
    /// What it may not do.
    pub guardrails: Option<Value>,
    /// Notes.
    pub metadata: Map<String, Value>,
}

impl Command for Coordinate {
    type Reply = Result<TermView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.admit_coordinator(turn, self.led, &self.caller, &self.agent)?;
        let acquire = self.acquire(turn.now())?;
        match ledger.acquire(turn, acquire)? {
            Acquired::Granted(grant) => {
                let term = ledger.begin_term(turn, self, &grant.lease);
                Ok(ledger.view_term(term))
            }
            Acquired::Queued(_) | Acquired::Refused(_) => Err(Refusal::Senseless("it is not free".to_owned())),
        }
    }
}

impl Coordinate {
    /// The lease under the term. A fixed end is a ttl that is never renewed.
    fn acquire(&self, now: Timestamp) -> Result<Acquire, Refusal> {
        let resource = self.led.resource().map_err(|why| Refusal::Senseless(why.to_string()))?;
        let ttl = self.until.map_or(Ok(self.ttl), |until| Ttl::from_ms(until.ms_since(now)));
        let ttl = ttl.map_err(|why| Refusal::Senseless(why.to_string()))?;
        Ok(Acquire::new([resource], self.agent.clone(), ttl))
    }
}

impl Ledger {
    /// Who coordinates an intent may also write it, unless an administrator says who does. Portfolios have no access list.
    fn admit_coordinator(&self, turn: &Turn<'_>, led: Led, by: &Caller, agent: &Holder) -> Result<(), Refusal> {
        let agent = Caller { holder: agent.clone(), is_admin: by.is_admin };
        match led {
            Led::Intent(id) => self.open_intent(turn, id, &agent, Permission::Write).map(drop),
            Led::Portfolio(id) => self.portfolios.find(id).map(drop),
        }
    }

    fn begin_term(&mut self, turn: &mut Turn<'_>, new: Coordinate, lease: &Lease) -> Arc<Coordinator> {
        let term = Coordinator {
            id: CoordinatorId(self.serial()),
            led: new.led,
            agent: new.agent,
            supervisor: new.supervisor,
            role: new.role,
            kind: new.kind,
            status: TermStatus::Active,
            lease: lease.token,
            ttl: lease.ttl,
            interval_ms: new.interval_ms,
            seen_at: turn.now(),
            has_beaten: false,
            granted_at: turn.now(),
            until: new.until,
            guardrails: new.guardrails,
            metadata: new.metadata,
            version: 1,
        };
        let by = term.agent.clone();
        self.put_term(turn, term, EventKind::CoordinatorGranted, &by, json!({}))
    }
}

/// What to do with a term.
#[derive(Debug, Clone)]
pub enum TermChange {
    /// The coordinator shows that it is there.
    Beat,
    /// It is told to stand still.
    Pause,
    /// And to go on.
    Resume,
    /// It gives the term back.
    Release,
    /// It passes the term on.
    HandOff(Holder),
    /// Its supervisor puts another in its place.
    Replace(Holder),
    /// What it may not do changes.
    Guardrails(Option<Value>),
    /// Its supervisor or an administrator ends it.
    Revoke,
}

/// Change a term. The coordinator itself may beat, hand off and release; its supervisor and administrators may do the rest, and
/// all but beat.
#[derive(Debug, Clone)]
pub struct ChangeTerm {
    /// Which.
    pub id: CoordinatorId,
    /// Who.
    pub caller: Caller,
    /// What.
    pub change: TermChange,
    /// Why.
    pub reason: Option<Box<str>>,
}

impl Command for ChangeTerm {
    type Reply = Result<TermView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let term = self.change(ledger, turn)?;
        Ok(ledger.view_term(term))
    }
}

impl ChangeTerm {
    fn change(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Result<Arc<Coordinator>, Refusal> {
        let term = Arc::clone(ledger.coordinators.find(self.id)?);
        self.check_caller(&term)?;
        if term.status.is_over() {
            return Err(Refusal::Over { what: "coordinator's term", how: term.status.as_str() });
        }
        let by = &self.caller.holder;
        let said = json!({ "reason": self.reason });
        match self.change {
            TermChange::Beat => ledger.beat_term(turn, &term),
            TermChange::Pause => {
                Ok(ledger.move_term(turn, &term, TermStatus::Paused, EventKind::CoordinatorPaused, by, said))
            }
            TermChange::Resume => {
                Ok(ledger.move_term(turn, &term, TermStatus::Active, EventKind::CoordinatorResumed, by, said))
            }
            TermChange::Release => {
                Ok(ledger.end_term(turn, &term, End::Released, EventKind::CoordinatorEnded, by, said))
            }
            TermChange::Revoke => Ok(ledger.end_term(turn, &term, End::Revoked, EventKind::CoordinatorEnded, by, said)),
            TermChange::HandOff(to) => ledger.pass_term(turn, &term, to, EventKind::CoordinatorHandedOff, self.caller),
            TermChange::Replace(with) => {
                ledger.pass_term(turn, &term, with, EventKind::CoordinatorReplaced, self.caller)
            }
            TermChange::Guardrails(guardrails) => {
                let said = json!({ "guardrails": guardrails });
                let term = Coordinator { guardrails, ..Coordinator::clone(&term) };
                Ok(ledger.move_term(turn, &term, term.status, EventKind::CoordinatorGuardrailsSet, by, said))
            }
        }
    }

    fn check_caller(&self, term: &Coordinator) -> Result<(), Refusal> {
        let by = &self.caller.holder;
        let is_above = self.caller.is_admin || *by == term.supervisor;
        let is_own = *by == term.agent;
        let may = match self.change {
            TermChange::Beat => is_own,
            TermChange::HandOff(_) | TermChange::Release => is_own || is_above,
            TermChange::Pause | TermChange::Resume => is_own || is_above,
            TermChange::Replace(_) | TermChange::Guardrails(_) | TermChange::Revoke => is_above,
        };
        if may { Ok(()) } else { Err(Refusal::NotYours { owner: term.agent.clone() }) }
    }
}

impl Ledger {
    fn put_term(
        &mut self,
        turn: &mut Turn<'_>,
        term: Coordinator,
        kind: EventKind,
        by: &Holder,
        said: Value,
    ) -> Arc<Coordinator> {
        let term = Arc::new(term);
        turn.changes.push(Change::Put(Record::Coordinator(Arc::clone(&term))));
        self.coordinators.put(Arc::clone(&term));
        if term.status.is_over() {
            self.forget_terms(turn, term.led);
        }
        if let Some(at) = term.deadline() {
            self.deadlines.push_again(at, Due::Coordinator(term.id));
        }
        let mut all = json!({ "coordinator_id": term.id, "status": term.status, "supervisor_id": term.supervisor });
        if let (Some(all), Value::Object(said)) = (all.as_object_mut(), said) {
            all.extend(said);
        }
        let resource = match term.led {
            Led::Intent(id) => crate::ledger::intents::whole(id),
            Led::Portfolio(_) => term.led.resource().ok(),
        };
        let event = Event::about(kind, turn.now(), resource, all);
        self.emit(turn, Event { holder: Some(term.agent.clone()), by: Some(by.clone()), ..event });
        term
    }

    /// Forgets the oldest terms that are over, if there are more than are kept.
    fn forget_terms(&mut self, turn: &mut Turn<'_>, led: Led) {
        for id in self.coordinators.too_many(led) {
            self.coordinators.remove(id);
            turn.changes.push(Change::Delete(RecordKind::Coordinator, id.into()));
        }
    }

    /// The same for all of them: an older version may have kept more.
    pub(crate) fn forget_all_terms(&mut self, turn: &mut Turn<'_>) {
        let all: Vec<Led> = self.coordinators.by_led.keys().copied().collect();
        for led in all {
            self.forget_terms(turn, led);
        }
    }

    fn move_term(
        &mut self,
        turn: &mut Turn<'_>,
        term: &Coordinator,
        status: TermStatus,
        kind: EventKind,
        by: &Holder,
        said: Value,
    ) -> Arc<Coordinator> {
        self.put_term(turn, Coordinator { status, version: term.version + 1, ..term.clone() }, kind, by, said)
    }

    /// A heartbeat renews the lease under the term, up to the fixed end if there is one.
    fn beat_term(&mut self, turn: &mut Turn<'_>, term: &Coordinator) -> Result<Arc<Coordinator>, Refusal> {
        let seen = Coordinator { seen_at: turn.now(), has_beaten: true, ..term.clone() };
        if term.until.is_none() {
            self.renew_own(turn, term.lease);
        }
        if term.status == TermStatus::Unresponsive {
            let by = term.agent.clone();
            return Ok(self.move_term(turn, &seen, TermStatus::Active, EventKind::CoordinatorResumed, &by, json!({})));
        }
        let seen = Arc::new(seen);
        self.coordinators.put(Arc::clone(&seen));
        Ok(seen)
    }

    /// Ends the term and the lease under it.
    fn end_term(
        &mut self,
        turn: &mut Turn<'_>,
        term: &Coordinator,
        end: End,
        kind: EventKind,
        by: &Holder,
        said: Value,
    ) -> Arc<Coordinator> {
        let status = if end == End::Expired { TermStatus::FailedOver } else { TermStatus::Completed };
        let over = self.move_term(turn, term, status, kind, by, said);
        self.end_because(turn, over.lease, end, "the coordinator's term is over");
        over
    }

    /// One term ends and the next begins, in one step: nobody else can come in between.
    fn pass_term(
        &mut self,
        turn: &mut Turn<'_>,
        term: &Coordinator,
        to: Holder,
        kind: EventKind,
        caller: Caller,
    ) -> Result<Arc<Coordinator>, Refusal> {
        if to == term.agent {
            return Err(Refusal::Senseless(format!("{to} is the coordinator already")));
        }
        self.admit_coordinator(turn, term.led, &caller, &to)?;
        let by = caller.holder.clone();
        let next = Coordinate {
            led: term.led,
            caller,
            agent: to.clone(),
            supervisor: term.supervisor.clone(),
            role: term.role.clone(),
            kind: term.kind.clone(),
            ttl: term.ttl,
            interval_ms: term.interval_ms,
            until: term.until,
            guardrails: term.guardrails.clone(),
            metadata: term.metadata.clone(),
        };
        let acquire = next.acquire(turn.now())?;
        self.admit(&acquire)?;
        self.end_term(turn, term, End::Released, kind, &by, json!({ "to": to }));
        // Those who wait for the term do not come before the one it is passed to.
        let grant = self.grant(turn, acquire);
        Ok(self.begin_term(turn, next, &grant.lease))
    }

    /// Silence has lasted: unresponsive first, then lost.
    pub(crate) fn silence_term(&mut self, turn: &mut Turn<'_>, id: CoordinatorId) {
        let Ok(term) = self.coordinators.find(id).cloned() else { return };
        let by = term.agent.clone();
        let said = json!({ "silent_ms": turn.now().ms_since(term.seen_at) });
        match term.status {
            TermStatus::Unresponsive => {
                self.end_term(turn, &term, End::Expired, EventKind::CoordinatorFailedOver, &by, said);
            }
            _ => {
                self.move_term(turn, &term, TermStatus::Unresponsive, EventKind::CoordinatorUnresponsive, &by, said);
            }
        }
    }

    /// The lease under a term has ended by itself: so has the term.
    pub(crate) fn lose_term(&mut self, turn: &mut Turn<'_>, lease: &Lease, end: End) {
        let Some(id) = self.coordinators.by_lease.get(&lease.token).copied() else { return };
        let Ok(term) = self.coordinators.find(id).cloned() else { return };
        let by = term.agent.clone();
        let said = json!({ "end": end });
        match end {
            End::Released => {
                self.move_term(turn, &term, TermStatus::Completed, EventKind::CoordinatorEnded, &by, said);
            }
            End::Expired | End::Revoked => {
                self.move_term(turn, &term, TermStatus::FailedOver, EventKind::CoordinatorFailedOver, &by, said);
            }
        }
    }
}

/// A term with the end of the lease under it, as things are.
#[derive(Debug, Clone)]
pub struct TermView {
    /// The term.
    pub term: Arc<Coordinator>,
    /// When it ends without a heartbeat; nothing if it is over.
    pub expires_at: Option<Timestamp>,
}

/// Look a term up: whose it is, who supervises it, and who may read the intent.
#[derive(Debug, Clone)]
pub struct GetTerm {
    /// Which.
    pub id: CoordinatorId,
    /// Who asks.
    pub caller: Caller,
}

impl Command for GetTerm {
    type Reply = Result<TermView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let term = Arc::clone(ledger.coordinators.find(self.id)?);
        let is_own = [&term.agent, &term.supervisor].contains(&&self.caller.holder);
        if let (Led::Intent(id), false) = (term.led, is_own) {
            ledger.open_intent(turn, id, &self.caller, Permission::Read)?;
        }
        Ok(ledger.view_term(term))
    }
}

impl Ledger {
    fn view_term(&self, term: Arc<Coordinator>) -> TermView {
        let expires_at = self.leases.get(&term.lease).map(|lease| lease.expires_at);
        TermView { term, expires_at }
    }
}

/// List the terms of an intent that are kept, the oldest first and the present one last.
#[derive(Debug, Clone)]
pub struct ListTerms {
    /// Which intent.
    pub id: IntentId,
    /// Who asks.
    pub caller: Caller,
}

impl Command for ListTerms {
    type Reply = Result<Vec<TermView>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.open_intent(turn, self.id, &self.caller, Permission::Read)?;
        let terms = ledger.coordinators.of(Led::Intent(self.id));
        Ok(terms.cloned().map(|term| ledger.view_term(term)).collect())
    }
}
