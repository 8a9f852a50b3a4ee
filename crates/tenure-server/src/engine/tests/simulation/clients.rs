//! The clients' side: what they ask for, what they were told, and what they rely on.

use std::collections::HashMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tenure_core::command::{Acquire, Check, Ending, Grant, List, Release, Renew, Renewal, Revoke, WaiterId};
use tenure_core::lease::Mode;
use tenure_core::refusal::Refusal;
use tenure_core::{Holder, Resource, Timestamp, Token};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::judge::Kept;
use super::requests::{Place, Request, call, gone, renew, take};
use crate::engine::tests::{holder, ttl};
use crate::engine::waits::Answer;

const HOLDERS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const RESOURCES: [&str; 8] =
    ["job:1", "job:2", "path:src", "path:src/a.rs", "path:docs", "path:**", "intent:x/*", "intent:x/s"];

/// An acquire without an answer.
struct Asked {
    acquire: Acquire,
    place: Place,
    answer: Receiver<Answer>,
}

impl Asked {
    /// What it waits for, if it is the only thing and for itself alone: then it can be compared with others.
    fn sole_wish(&self) -> Option<(&Resource, WaiterId)> {
        match self.acquire.resources.as_slice() {
            [one] if self.acquire.mode == Mode::Exclusive && self.acquire.within.is_none() => {
                Some((one, self.place.get()?))
            }
            _ => None,
        }
    }
}

/// What a holder was told, in the time that really passed.
#[derive(Clone, Copy)]
struct Promise {
    at_ms: u64,
    until_ms: u64,
}

impl Promise {
    /// The latest answer counts, also one that shortened the ttl; of two in one moment the shorter.
    fn remember(self, promised: &mut HashMap<Token, Promise>, token: Token) {
        let last = promised.entry(token).or_insert(self);
        if self.at_ms > last.at_ms || self.until_ms < last.until_ms {
            *last = self;
        }
    }
}

/// All clients, and what they were promised.
#[derive(Default)]
pub(super) struct Clients {
    acquires: Vec<Asked>,
    renewals: Vec<(Token, bool, Receiver<Vec<Renewal>>)>,
    releases: Vec<(Token, Receiver<Ending>)>,
    /// Every grant that was answered: when its holder was last told how long it runs, and until when that is.
    promised: HashMap<Token, Promise>,
    /// How many renewals with another ttl have no answer: nobody knows which ttl the lease has.
    in_doubt: HashMap<Token, u32>,
    /// Every end that was answered.
    ended: Vec<Token>,
    owners: HashMap<Token, Holder>,
    tokens: Vec<Token>,
    keys: u64,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients::default()
    }

    /// Until when the holder of a lease relies on it, in the time that really passed.
    pub(super) fn promised(&self, token: Token) -> Option<u64> {
        let is_in_doubt = self.in_doubt.get(&token).is_some_and(|count| *count > 0);
        self.promised.get(&token).filter(|_| !is_in_doubt).map(|promise| promise.until_ms)
    }

    /// Somebody does something; what is sent comes back.
    pub(super) fn act(&mut self, rng: &mut StdRng) -> Option<Request> {
        let who = holder(HOLDERS.choose(rng).expect("some"));
        match rng.random_range(0..100) {
            0..45 => Some(self.acquire(rng, who)),
            45..65 => Some(self.renew(rng)?),
            65..82 => Some(self.release(rng)?),
            82..86 => {
                let token = *self.tokens.choose(rng)?;
                let (request, answer) = call(Revoke { token, by: who, reason: "drill".into() });
                self.releases.push((token, answer));
                Some(request)
            }
            86..94 => self.walk_away(rng),
            94..97 => Some(call(Check { resources: pick(rng), mode: Mode::Exclusive, holder: None }).0),
            _ => Some(call(List { limit: 5, ..List::default() }).0),
        }
    }

    fn acquire(&mut self, rng: &mut StdRng, who: Holder) -> Request {
        let mut acquire = Acquire::new(pick(rng), who, ttl(rng.random_range(100..6_000)));
        if rng.random_bool(0.2) {
            acquire.mode = Mode::Shared;
        }
        if rng.random_bool(0.6) {
            acquire.wait_ms = Some(rng.random_range(0..20_000));
        }
        if rng.random_bool(0.1) {
            acquire.grace_ms = rng.random_range(1..3_000);
        }
        if rng.random_bool(0.15) {
            // A parent that may be over, or another holder's.
            acquire.within = self.tokens.choose(rng).copied();
        }
        if rng.random_bool(0.3) {
            self.keys += u64::from(rng.random_bool(0.7));
            acquire.key = Some(format!("k{}", self.keys).into());
        }
        let place = Place::default();
        let (request, answer) = take(acquire.clone(), place.clone());
        self.acquires.push(Asked { acquire, place, answer });
        request
    }

    fn renew(&mut self, rng: &mut StdRng) -> Option<Request> {
        let token = *self.tokens.choose(rng)?;
        let holder = self.owners.get(&token)?.clone();
        let ttl = rng.random_bool(0.2).then(|| ttl(rng.random_range(100..6_000)));
        let (request, answer) = renew(Renew { tokens: vec![token], holder, ttl });
        *self.in_doubt.entry(token).or_default() += u32::from(ttl.is_some());
        self.renewals.push((token, ttl.is_some(), answer));
        Some(request)
    }

    fn release(&mut self, rng: &mut StdRng) -> Option<Request> {
        let token = *self.tokens.choose(rng)?;
        let holder = self.owners.get(&token)?.clone();
        let (request, answer) = call(Release { token, holder });
        self.releases.push((token, answer));
        Some(request)
    }

    /// A client that has asked goes away; if it stood in line, that is told.
    fn walk_away(&mut self, rng: &mut StdRng) -> Option<Request> {
        if self.acquires.is_empty() {
            return None;
        }
        let left = self.acquires.swap_remove(rng.random_range(0..self.acquires.len()));
        left.place.get().map(gone)
    }

    /// Takes the answers in, at a time of the ledger and the time that really passed. Each must rest on what is kept, and
    /// none may come from a batch that failed.
    pub(super) fn listen(&mut self, kept: &Kept, worked: bool, time: (Timestamp, u64)) {
        let mut granted = Vec::new();
        let mut asked = Vec::new();
        for mut one in std::mem::take(&mut self.acquires) {
            match one.answer.try_recv() {
                Ok(Ok(grant)) => {
                    assert!(worked, "a grant was answered from a commit that failed");
                    self.told(&grant, kept, time);
                    granted.push(one);
                }
                Ok(Err(refusal)) => check_refusal(&one.acquire, &refusal),
                Err(TryRecvError::Empty) => asked.push(one),
                Err(TryRecvError::Closed) => {}
            }
        }
        check_order(&granted, &asked);
        self.acquires = asked;
        self.hear_renewals(time);
        self.hear_ends(kept);
    }

    fn told(&mut self, grant: &Grant, kept: &Kept, (now, elapsed_ms): (Timestamp, u64)) {
        let lease = &grant.lease;
        assert!(kept.grants.contains(&lease.token), "{} was granted and is not in the store", lease.token);
        let left_ms = lease.expires_at.ms_since(now);
        let promise = Promise { at_ms: elapsed_ms, until_ms: elapsed_ms + left_ms };
        let is_known = self.promised.contains_key(&lease.token);
        if grant.ended.is_none() {
            promise.remember(&mut self.promised, lease.token);
        } else if !is_known {
            // It was over before anyone heard of it.
            self.promised.insert(lease.token, Promise { at_ms: elapsed_ms, until_ms: 0 });
        }
        if self.owners.insert(lease.token, lease.holder.clone()).is_none() {
            self.tokens.push(lease.token);
        }
    }

    fn hear_renewals(&mut self, (now, elapsed_ms): (Timestamp, u64)) {
        let (promised, in_doubt) = (&mut self.promised, &mut self.in_doubt);
        self.renewals.retain_mut(|(token, changes_ttl, answer)| match answer.try_recv() {
            Ok(renewals) => {
                if let [Renewal::Renewed { expires_at, .. }] = renewals.as_slice() {
                    let until_ms = elapsed_ms + expires_at.ms_since(now);
                    Promise { at_ms: elapsed_ms, until_ms }.remember(promised, *token);
                }
                *in_doubt.entry(*token).or_default() -= u32::from(*changes_ttl);
                false
            }
            Err(why) => why == TryRecvError::Empty,
        });
    }

    fn hear_ends(&mut self, kept: &Kept) {
        let ended = &mut self.ended;
        self.releases.retain_mut(|(token, answer)| match answer.try_recv() {
            Ok(ending) => {
                if matches!(ending, Ending::Ended(..) | Ending::Over) {
                    assert!(kept.ends.contains(token), "{token} was said to be over and its end is not in the store");
                    ended.push(*token);
                }
                false
            }
            Err(why) => why == TryRecvError::Empty,
        });
    }

    /// The server died: whoever has no answer by now gets none from it, unless the request is still on its way.
    pub(super) fn hear_of_crash(&mut self) {
        self.acquires.retain_mut(|one| !matches!(one.answer.try_recv(), Err(TryRecvError::Closed)));
    }

    /// After a restart nothing that was answered may be missing.
    pub(super) fn check_acknowledged(&self, kept: &Kept) {
        for token in self.promised.keys() {
            assert!(kept.grants.contains(token), "the grant of {token} was acknowledged and is lost");
        }
        for token in &self.ended {
            assert!(kept.ends.contains(token), "the end of {token} was acknowledged and is lost");
        }
    }

    /// At the end of all time nobody is left without an answer.
    pub(super) fn check_nobody_waits(&self) {
        assert!(self.acquires.is_empty(), "{} acquires were never answered", self.acquires.len());
    }
}

/// L9: nobody is granted what someone waits for longer, who wants exactly the same.
fn check_order(granted: &[Asked], in_line: &[Asked]) {
    for (what, later) in granted.iter().filter_map(Asked::sole_wish) {
        let passed =
            in_line.iter().filter_map(Asked::sole_wish).find(|(other, earlier)| *other == what && *earlier < later);
        assert!(passed.is_none(), "{later:?} was granted {what} before {passed:?}");
    }
}

fn check_refusal(acquire: &Acquire, refusal: &Refusal) {
    if let Refusal::Held(conflict) | Refusal::WaitTimedOut(conflict) = refusal {
        assert!(acquire.resources.contains(&conflict.resource), "the refusal is about what was asked");
        assert!(conflict.resource.overlaps(&conflict.overlap), "what is in the way overlaps it");
    }
}

fn pick(rng: &mut StdRng) -> tenure_core::lease::Resources {
    let count = if rng.random_bool(0.8) { 1 } else { 2 };
    RESOURCES.choose_multiple(rng, count).map(|name| Resource::parse(name).expect("a resource")).collect()
}
