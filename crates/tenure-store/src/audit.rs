//! Owns the judgement of a history: given the events alone, was anything held twice, granted out of order, or ended
//! without having begun?
//!
//! Pure: it reads events one by one and keeps only the leases that are active, so it can follow a running server as
//! well as a file of a hundred million events. It relies on nothing but the order of events and does not promise to
//! find what events do not show (the order of waiters, closed resources).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tenure_core::event::{Cursor, Event, EventKind, Step};
use tenure_core::lease::{End, Mode, Resources};
use tenure_core::{Holder, Resource, Timestamp, Token};

/// What a history must never show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An event is missing, repeated or out of order.
    #[error("event {} stands where event {} belongs", .got.0, .expected.0)]
    Order {
        /// The cursor that was next.
        expected: Cursor,
        /// The one that came.
        got: Cursor,
    },
    /// The ledger's clock ran backwards.
    #[error("event {} happened at {} ms, before the one in front of it", .cursor.0, .at.unix_ms())]
    TimeWentBack {
        /// The event.
        cursor: Cursor,
        /// Its time.
        at: Timestamp,
    },
    /// A token that is not larger than all before it (L2).
    #[error("token {token} was granted after token {last}")]
    TokenOrder {
        /// The token granted.
        token: Token,
        /// The largest before it.
        last: Token,
    },
    /// Two incompatible leases overlapped in resource and in time (L1).
    #[error("{} got {} (token {}) while {} held {} (token {})", .second.holder, .second.resource, .second.token, .first.holder, .first.resource, .first.token)]
    HeldTwice {
        /// Who held it.
        first: Claim,
        /// Who got it too.
        second: Claim,
    },
    /// A lease ended or was renewed that is not active.
    #[error("{} of token {token}, which is not active at event {}", .kind.as_str(), .cursor.0)]
    NotActive {
        /// The event.
        cursor: Cursor,
        /// What it says.
        kind: EventKind,
        /// The lease.
        token: Token,
    },
    /// A lease was expired while it still ran (L13).
    #[error("token {token} expired at {} ms, though it ran until {} ms", .at.unix_ms(), .expires_at.unix_ms())]
    ExpiredEarly {
        /// The lease.
        token: Token,
        /// When it was ended.
        at: Timestamp,
        /// Until when it was to run.
        expires_at: Timestamp,
    },
    /// A lease lives within one that is not active or is another holder's (L1).
    #[error("token {token} was granted within token {parent}, which its holder does not have")]
    BadParent {
        /// The lease.
        token: Token,
        /// What it claims to live within.
        parent: Token,
    },
    /// A lease was still active some time after the one it lived within (L1).
    #[error("token {token} outlived the lease it was within")]
    Orphan {
        /// The lease.
        token: Token,
    },
    /// An event lacks what its kind must have.
    #[error("event {} ({}) lacks a token, a holder or resources", .cursor.0, .kind.as_str())]
    Incomplete {
        /// The event.
        cursor: Cursor,
        /// Its kind.
        kind: EventKind,
    },
}

/// One side of an overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lease.
    pub token: Token,
    /// Whose.
    pub holder: Holder,
    /// Which of its resources.
    pub resource: Resource,
}

struct Held {
    holder: Holder,
    resources: Resources,
    mode: Mode,
    within: Option<Token>,
}

/// Follows a history event by event.
pub struct Auditor {
    next: Cursor,
    at: Timestamp,
    /// Whether the history is given from its first event.
    complete: bool,
    first_token: Option<Token>,
    last_token: Option<Token>,
    active: HashMap<Token, Held>,
    /// Which active leases hold a place.
    places: BTreeMap<Resource, BTreeSet<Token>>,
    /// Which active leases live within one.
    children: HashMap<Token, Vec<Token>>,
    /// Leases whose parent is over, and since when; they must end before time goes on.
    orphans: BTreeMap<Token, Timestamp>,
}

impl Default for Auditor {
    fn default() -> Auditor {
        Auditor::new()
    }
}

impl Auditor {
    /// For a history from its first event.
    pub fn new() -> Auditor {
        Auditor::starting_at(Cursor(1))
    }

    /// For a history whose events before `first` are no longer kept: leases granted there may end here.
    pub fn starting_at(first: Cursor) -> Auditor {
        Auditor {
            next: first,
            at: Timestamp::default(),
            complete: first <= Cursor(1),
            first_token: None,
            last_token: None,
            active: HashMap::new(),
            places: BTreeMap::new(),
            children: HashMap::new(),
            orphans: BTreeMap::new(),
        }
    }

    /// Takes the next event. After a violation the audit can go on.
    pub fn push(&mut self, event: &Event) -> Result<(), Violation> {
        let order = self.check_order(event);
        let orphan = self.check_orphans(event.at);
        let content = match event.kind.step() {
            Some(Step::Granted) => self.grant(event),
            Some(Step::Renewed) => self.renew(event),
            Some(Step::Ended(_)) => self.end(event),
            // What is not about leases has no place in their order.
            None => Ok(()),
        };
        order.and(orphan).and(content)
    }

    /// The end of the history: nothing may be left half done.
    pub fn finish(mut self) -> Result<(), Violation> {
        self.check_orphans(Timestamp::from_unix_ms(u64::MAX))
    }

    /// The leases that are active now.
    pub fn active(&self) -> impl Iterator<Item = Token> {
        self.active.keys().copied()
    }

    /// Whether a lease may be active though this history does not show its grant.
    pub fn may_predate(&self, token: Token) -> bool {
        !self.complete && self.first_token.is_none_or(|first| token < first)
    }

    fn check_order(&mut self, event: &Event) -> Result<(), Violation> {
        let expected = std::mem::replace(&mut self.next, event.cursor.next());
        let last = self.at;
        self.at = last.max(event.at);
        if event.cursor != expected {
            return Err(Violation::Order { expected, got: event.cursor });
        }
        if event.at < last {
            return Err(Violation::TimeWentBack { cursor: event.cursor, at: event.at });
        }
        Ok(())
    }

    /// Parent and child end in one batch, in either order; so a child is late only when time has moved on.
    fn check_orphans(&mut self, now: Timestamp) -> Result<(), Violation> {
        let late = self.orphans.first_key_value().filter(|(_, since)| **since < now).map(|(token, _)| *token);
        let Some(token) = late else { return Ok(()) };
        self.orphans.remove(&token);
        Err(Violation::Orphan { token })
    }

    fn grant(&mut self, event: &Event) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete { cursor: event.cursor, kind: event.kind };
        let (Some(token), Some(holder)) = (event.token, event.holder.clone()) else { return Err(incomplete) };
        if event.resources.is_empty() {
            return Err(incomplete);
        }
        let last = self.last_token;
        self.last_token = last.max(Some(token));
        self.first_token.get_or_insert(token);
        let held = Held {
            holder,
            resources: event.resources.clone(),
            mode: event.mode.unwrap_or_default(),
            within: event.within,
        };
        let verdict = self.judge_grant(token, &held, last);
        self.insert(token, held);
        verdict
    }

    fn judge_grant(&self, token: Token, held: &Held, last: Option<Token>) -> Result<(), Violation> {
        if let Some(last) = last.filter(|last| *last >= token) {
            return Err(Violation::TokenOrder { token, last });
        }
        if let Some(parent) = held.within {
            let is_theirs = self.active.get(&parent).map(|parent| parent.holder == held.holder);
            if !is_theirs.unwrap_or_else(|| self.may_predate(parent)) {
                return Err(Violation::BadParent { token, parent });
            }
        }
        self.find_overlap(token, held)
    }

    /// Looks on the way to each place and below it.
    fn find_overlap(&self, token: Token, held: &Held) -> Result<(), Violation> {
        for resource in &held.resources {
            let place: &str = std::borrow::Borrow::borrow(resource);
            let above = place.match_indices('\0').filter_map(|(at, _)| place.get(..=at));
            let above = above.filter(|way| *way != place).filter_map(|way| self.places.get_key_value(way));
            let below = self.places.range::<Resource, _>(resource..).take_while(|(other, _)| resource.covers(other));
            for (other, tokens) in above.chain(below) {
                for first in tokens.iter().filter(|first| **first != token) {
                    self.judge_pair((*first, other), (token, resource, held))?;
                }
            }
        }
        Ok(())
    }

    fn judge_pair(&self, first: (Token, &Resource), second: (Token, &Resource, &Held)) -> Result<(), Violation> {
        let (token, resource, held) = second;
        let Some(other) = self.active.get(&first.0) else { return Ok(()) };
        if other.mode.is_compatible_with(held.mode) || self.is_within(held, first.0) || self.is_within(other, token) {
            return Ok(());
        }
        Err(Violation::HeldTwice {
            first: Claim { token: first.0, holder: other.holder.clone(), resource: first.1.clone() },
            second: Claim { token, holder: held.holder.clone(), resource: resource.clone() },
        })
    }

    /// Whether a lease lives within `ancestor`, directly or through leases between.
    fn is_within(&self, held: &Held, ancestor: Token) -> bool {
        let mut parent = held.within;
        // A parent's token is smaller than its child's, so this ends also for a history that lies.
        while let Some(token) = parent {
            if token == ancestor {
                return true;
            }
            parent = self.active.get(&token).and_then(|held| held.within).filter(|next| *next < token);
        }
        false
    }

    fn insert(&mut self, token: Token, held: Held) {
        for resource in &held.resources {
            self.places.entry(resource.clone()).or_default().insert(token);
        }
        if let Some(parent) = held.within {
            self.children.entry(parent).or_default().push(token);
        }
        self.active.insert(token, held);
    }

    fn renew(&mut self, event: &Event) -> Result<(), Violation> {
        let Event { cursor, kind, token: Some(token), .. } = *event else {
            return Err(Violation::Incomplete { cursor: event.cursor, kind: event.kind });
        };
        if self.active.contains_key(&token) || self.may_predate(token) {
            return Ok(());
        }
        Err(Violation::NotActive { cursor, kind, token })
    }

    fn end(&mut self, event: &Event) -> Result<(), Violation> {
        let Event { cursor, kind, token: Some(token), .. } = *event else {
            return Err(Violation::Incomplete { cursor: event.cursor, kind: event.kind });
        };
        let verdict = match self.remove(token) {
            Some(_) => Ok(()),
            None if self.may_predate(token) => self.judge_unseen(token, event),
            None => Err(Violation::NotActive { cursor, kind, token }),
        };
        self.orphans.remove(&token);
        let children = self.children.remove(&token).unwrap_or_default();
        self.orphans.extend(children.into_iter().map(|child| (child, event.at)));
        verdict.and_then(|()| judge_expiry(event, token))
    }

    /// A lease from before this history was active all the while, so whatever is active now overlapped it in time.
    fn judge_unseen(&self, token: Token, event: &Event) -> Result<(), Violation> {
        let Some(holder) = event.holder.clone() else { return Ok(()) };
        let held = Held {
            holder,
            resources: event.resources.clone(),
            mode: event.mode.unwrap_or_default(),
            within: event.within,
        };
        self.find_overlap(token, &held)
    }

    fn remove(&mut self, token: Token) -> Option<Held> {
        let held = self.active.remove(&token)?;
        for resource in &held.resources {
            if let Some(tokens) = self.places.get_mut(resource) {
                tokens.remove(&token);
                if tokens.is_empty() {
                    self.places.remove(resource);
                }
            }
        }
        if let Some(siblings) = held.within.and_then(|parent| self.children.get_mut(&parent)) {
            siblings.retain(|child| *child != token);
        }
        Some(held)
    }
}

/// A lease that ends with its parent ends when that one does, whatever its own ttl.
fn judge_expiry(event: &Event, token: Token) -> Result<(), Violation> {
    let is_own_expiry = event.kind.end() == Some(End::Expired) && event.ended_with.is_none();
    match event.expires_at.filter(|expires_at| is_own_expiry && *expires_at > event.at) {
        Some(expires_at) => Err(Violation::ExpiredEarly { token, at: event.at, expires_at }),
        None => Ok(()),
    }
}
