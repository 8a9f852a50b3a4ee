//! Owns the lease on a scope of an intent: which intent takes leases, and whose.
//!
//! A holder of the whole intent that asks for one of its scopes is given it within the lease it has: the narrower lease ends
//! with the wider one. Asking again for exactly what one holds is refused like any other second lease, and the refusal
//! shows the lease to renew: two instances of one agent must not both believe they have it.

use crate::access::{Caller, Permission};
use crate::command::{Acquire, Acquired, Command, Ending, Release, Renew};
use crate::document::Refusal;
use crate::lease::{Lease, Mode};
use crate::ledger::intents::whole;
use crate::ledger::{Ledger, Turn};
use crate::limits::PAGE_MAX;
use crate::serial::IntentId;
use crate::{Holder, Resource, Timestamp, Token, Ttl};

/// Take a scope of an intent.
#[derive(Debug, Clone)]
pub struct AcquireScope {
    /// Of which intent.
    pub id: IntentId,
    /// Who asks.
    pub caller: Caller,
    /// The lease that is asked for; its `within` is filled in here.
    pub acquire: Acquire,
}

impl AcquireScope {
    /// The acquire that this comes to, if the intent takes it.
    fn admit(mut self, ledger: &Ledger, turn: &Turn<'_>) -> Result<Acquire, Refusal> {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Write)?;
        if intent.status.is_finished() {
            return Err(Refusal::Finished(intent.status));
        }
        // Asked again when a wait is granted: the list may have changed.
        self.acquire.heeds_lists = !self.caller.is_admin;
        if self.acquire.within.is_none() {
            self.acquire.within = ledger.own_whole(self.id, &self.acquire);
        }
        Ok(self.acquire)
    }
}

impl Command for AcquireScope {
    type Reply = Result<Acquired, Refusal>;

    /// Answers at once; whoever wants to wait asks for the acquire first ([`AdmitScope`]).
    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let acquire = Acquire { wait_ms: None, ..self.admit(ledger, turn)? };
        Ok(ledger.acquire(turn, acquire)?)
    }
}

/// What an [`AcquireScope`] comes to, without taking it: for those who wait.
#[derive(Debug, Clone)]
pub struct AdmitScope(pub AcquireScope);

impl Command for AdmitScope {
    type Reply = Result<Acquire, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        self.0.admit(ledger, turn)
    }
}

/// Why a lease on a scope cannot be kept or given back.
#[derive(Debug, Clone)]
pub enum ScopeMiss {
    /// No such lease on this intent.
    Unknown,
    /// It is over; the events tell how.
    Over,
    /// It is someone else's.
    NotHolder(Box<Lease>),
}

/// Keep a lease on a scope of an intent alive.
#[derive(Debug, Clone)]
pub struct RenewScope {
    /// Of this intent; of any, if not said.
    pub intent: Option<IntentId>,
    /// Which lease.
    pub token: Token,
    /// Who asks.
    pub holder: Holder,
    /// A new ttl; `None` keeps the lease's own.
    pub ttl: Option<Ttl>,
}

impl Command for RenewScope {
    type Reply = Result<Lease, ScopeMiss>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.own_scope(self.intent, self.token, &self.holder)?;
        let renew = Renew { tokens: vec![self.token], holder: self.holder, ttl: self.ttl };
        renew.decide(ledger, turn);
        ledger.leases.get(&self.token).cloned().ok_or(ScopeMiss::Over)
    }
}

/// Give a lease on a scope of an intent back.
#[derive(Debug, Clone)]
pub struct ReleaseScope {
    /// Of this intent; of any, if not said.
    pub intent: Option<IntentId>,
    /// Which lease.
    pub token: Token,
    /// Who asks.
    pub holder: Holder,
}

impl Command for ReleaseScope {
    /// What it was, and when it ended.
    type Reply = Result<(Lease, Timestamp), ScopeMiss>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.own_scope(self.intent, self.token, &self.holder)?;
        match (Release { token: self.token, holder: self.holder }).decide(ledger, turn) {
            Ending::Ended(lease, at) => Ok((lease, at)),
            Ending::Over | Ending::NotHolder { .. } | Ending::Unknown => Err(ScopeMiss::Over),
        }
    }
}

/// List the active leases on an intent, the oldest first.
#[derive(Debug, Clone)]
pub struct ListScopes {
    /// Which intent.
    pub id: IntentId,
    /// Who asks.
    pub caller: Caller,
}

impl Command for ListScopes {
    type Reply = Result<Vec<Lease>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.open_intent(turn, self.id, &self.caller, Permission::Read)?;
        let mut tokens = whole(self.id).map(|whole| ledger.tokens_over(&whole)).unwrap_or_default();
        tokens.sort_unstable();
        tokens.truncate(PAGE_MAX);
        Ok(tokens.into_iter().filter_map(|token| ledger.leases.get(&token).cloned()).collect())
    }
}

impl Ledger {
    /// Whether this is an active lease of the holder on a scope of the intent.
    fn own_scope(&self, intent: Option<IntentId>, token: Token, holder: &Holder) -> Result<(), ScopeMiss> {
        let Some(lease) = self.leases.get(&token) else {
            return Err(if self.was_granted(token) { ScopeMiss::Over } else { ScopeMiss::Unknown });
        };
        match self.intent_of(lease) {
            Some(of) if intent.is_none_or(|asked| asked == of) => {}
            _ => return Err(ScopeMiss::Unknown),
        }
        if lease.holder == *holder { Ok(()) } else { Err(ScopeMiss::NotHolder(Box::new(lease.clone()))) }
    }

    /// The lease of the same holder on the whole intent, if a part is asked for.
    fn own_whole(&self, id: IntentId, acquire: &Acquire) -> Option<Token> {
        let whole = whole(id)?;
        if acquire.resources.contains(&whole) {
            return None;
        }
        let mut over = self.tokens_at(&whole).into_iter().filter_map(|token| self.leases.get(&token));
        over.find(|lease| lease.holder == acquire.holder).map(|lease| lease.token)
    }

    /// The leases that overlap a resource.
    pub(crate) fn tokens_over(&self, resource: &Resource) -> Vec<Token> {
        let places = self.held.against(resource, Mode::Exclusive);
        places.flat_map(|(_, ids, _)| ids.iter().map(|id| Token::from_u64(*id))).collect()
    }

    /// The leases on exactly this resource.
    pub(crate) fn tokens_at(&self, resource: &Resource) -> Vec<Token> {
        let modes = [Mode::Exclusive, Mode::Shared].into_iter();
        modes.flat_map(|mode| self.held.at(resource, mode).iter().map(|id| Token::from_u64(*id))).collect()
    }

    /// The leases that a holder has on an intent.
    pub(crate) fn leases_on(&self, id: IntentId, holder: &Holder) -> impl Iterator<Item = &Lease> {
        let tokens = whole(id).map(|whole| self.tokens_over(&whole)).unwrap_or_default();
        tokens.into_iter().filter_map(|token| self.leases.get(&token)).filter(move |lease| lease.holder == *holder)
    }

    /// The intent whose scope a lease holds, if it is one that is known here.
    pub(crate) fn intent_of(&self, lease: &Lease) -> Option<IntentId> {
        lease.resources.iter().filter_map(Resource::intent).find(|id| self.intents.get(*id).is_some())
    }
}
