//! Owns the grant (L1, L2, L7, L8): an acquire is checked, then granted, put in line or refused.

use crate::Token;
use crate::change::{Change, Keyed, Record};
use crate::command::{Acquire, Acquired, Command, Grant};
use crate::event::{Event, EventKind};
use crate::json;
use crate::lease::{Lease, Resources};
use crate::ledger::conflict::Wanted;
use crate::ledger::deadlines::Due;
use crate::ledger::keys::{KeyUse, fingerprint};
use crate::ledger::{Ledger, Turn};
use crate::limits;
use crate::refusal::Refusal;

impl Command for Acquire {
    type Reply = Acquired;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Acquired {
        ledger.acquire(turn, self).unwrap_or_else(Acquired::Refused)
    }
}

impl Ledger {
    pub(crate) fn acquire(&mut self, turn: &mut Turn<'_>, mut request: Acquire) -> Result<Acquired, Refusal> {
        drop_repeats(&mut request.resources);
        check_limits(&request)?;
        if let Some(answer) = self.answer_again(turn, &request)? {
            return Ok(answer);
        }
        let chain = self.chain(request.within, &request.holder)?;
        self.admit(&request)?;
        let wanted = Wanted { resources: &request.resources, mode: request.mode, chain: &chain, place: None };
        match (self.obstacle(&wanted), request.wait_ms) {
            (None, _) => Ok(Acquired::Granted(self.grant(turn, request))),
            (Some(conflict), None | Some(0)) => Err(Refusal::Held(Box::new(conflict.seen_by(&request.holder)))),
            (Some(_), Some(wait_ms)) => self.enqueue(turn, request, chain, wait_ms).map(Acquired::Queued),
        }
    }

    /// The answer this request's key was given before (L7); one that is still in line waits at least as long as this one would.
    fn answer_again(&mut self, turn: &Turn<'_>, request: &Acquire) -> Result<Option<Acquired>, Refusal> {
        let Some((used, of)) = self.keys.find(request) else { return Ok(None) };
        let (answer, is_same) = match used {
            KeyUse::Waiting(waiter) => {
                let is_same = self.queue.get(waiter).is_none_or(|waiter| *waiter.resources() == request.resources);
                (Some(Acquired::Queued(waiter)), is_same)
            }
            KeyUse::Answered(token) => {
                let grant = self.granted_before(token);
                let is_same = grant.as_ref().is_none_or(|grant| grant.lease.resources == request.resources);
                (grant.map(Acquired::Granted), is_same)
            }
        };
        if of != fingerprint(request) || !is_same {
            return Err(Refusal::KeyReused);
        }
        if let KeyUse::Waiting(waiter) = used {
            self.queue.wait_until(waiter, turn.now().plus_ms(request.wait_ms.unwrap_or(0)));
        }
        Ok(answer)
    }

    /// The grant of a keyed acquire, also when its lease is over.
    fn granted_before(&self, token: Token) -> Option<Grant> {
        let active = self.leases.get(&token).map(|lease| Grant { lease: lease.clone(), ended: None });
        let ended = || self.keys.get(token).and_then(|keyed| keyed.ended.as_deref());
        active.or_else(|| ended().map(|over| Grant { lease: over.lease.clone(), ended: Some(over.end) }))
    }

    /// Whether the holder may have one more lease.
    pub(crate) fn admit(&self, request: &Acquire) -> Result<(), Refusal> {
        let has = self.holders.get(&request.holder).map_or(0, |holdings| holdings.leases.len());
        if has >= limits::LEASES_PER_HOLDER_MAX {
            return Err(Refusal::LimitReached { what: "leases per holder", max: limits::LEASES_PER_HOLDER_MAX });
        }
        self.admit_documents(request)
    }

    /// Grants what nothing stands against.
    pub(crate) fn grant(&mut self, turn: &mut Turn<'_>, request: Acquire) -> Grant {
        let token = self.next_token();
        let keyed = request.key.clone().map(|key| Keyed {
            token,
            holder: request.holder.clone(),
            key,
            fingerprint: fingerprint(&request),
            ended: None,
        });
        let lease = Lease {
            token,
            resources: request.resources,
            holder: request.holder,
            mode: request.mode,
            acquired_at: turn.now(),
            expires_at: turn.now().plus_ms(request.ttl.ms()),
            ttl: request.ttl,
            grace_ms: request.grace_ms,
            within: request.within,
            metadata: request.metadata,
        };
        let lease = self.insert_lease(lease);
        turn.changes.push(Change::of_grant(&lease));
        self.emit(turn, Event::of_lease(EventKind::LeaseGranted, turn.now(), &lease));
        self.regain(turn, &lease);
        self.attempt_begins(turn, &lease);
        if let Some(keyed) = keyed {
            turn.changes.push(Change::Put(Record::Key(keyed.clone())));
            self.keys.insert(keyed);
        }
        Grant { lease, ended: None }
    }

    /// Puts an active lease into every index.
    pub(crate) fn insert_lease(&mut self, mut lease: Lease) -> Lease {
        lease.holder = self.holders.add_lease(lease.holder, lease.token);
        self.held.insert(&lease.resources, lease.mode, lease.token.as_u64());
        if let Some(parent) = lease.within {
            self.children.entry(parent).or_default().push(lease.token);
        }
        self.deadlines.push(lease.expires_at, Due::Lease(lease.token));
        self.leases.insert(lease.token, lease.clone());
        lease
    }
}

fn drop_repeats(resources: &mut Resources) {
    if resources.len() < 2 {
        return;
    }
    let mut kept = Resources::new();
    for resource in resources.drain(..) {
        if !kept.contains(&resource) {
            kept.push(resource);
        }
    }
    *resources = kept;
}

fn check_limits(request: &Acquire) -> Result<(), Refusal> {
    if request.resources.is_empty() {
        return Err(Refusal::NoResources);
    }
    let metadata = request.metadata.as_ref().map_or(0, |metadata| metadata.get().len());
    let depth = request.metadata.as_ref().map_or(0, |metadata| json::depth(metadata.get()));
    let key = request.key.as_ref().map_or(0, |key| key.len());
    let wait_ms = request.wait_ms.unwrap_or(0);
    for (what, has, max) in [
        ("the number of resources in one acquire", request.resources.len() as u64, limits::RESOURCES_PER_ACQUIRE_MAX),
        ("the size of metadata in bytes", metadata as u64, limits::METADATA_BYTES_MAX),
        ("the depth of metadata", depth as u64, limits::METADATA_DEPTH_MAX),
        ("the size of an idempotency key in bytes", key as u64, limits::IDEMPOTENCY_KEY_BYTES_MAX),
        ("a wait in milliseconds", wait_ms, limits::WAIT_MS_MAX as usize),
        ("a grace in milliseconds", u64::from(request.grace_ms), limits::GRACE_MS_MAX as usize),
    ] {
        if has > max as u64 {
            return Err(Refusal::LimitReached { what, max });
        }
    }
    Ok(())
}
