//! The rules again, as plainly as they can be written: lists, scanned from end to end. Slow and obviously right.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::lease::{End, Mode};
use tenure_core::{Holder, Resource};

#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub token: u64,
    pub resources: Vec<Resource>,
    pub holder: Holder,
    pub mode: Mode,
    pub expires_at: u64,
    pub ttl: u64,
    pub grace: u64,
    pub within: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct Want {
    pub resources: Vec<Resource>,
    pub holder: Holder,
    pub mode: Mode,
    pub ttl: u64,
    pub grace: u64,
    pub within: Option<u64>,
    pub wait: Option<u64>,
    pub key: Option<String>,
}

#[derive(Debug, Clone)]
struct Waiting {
    id: u64,
    want: Want,
    chain: Vec<u64>,
    deadline: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Granted(u64),
    Ended(u64, End),
    Queued(u64),
    Held,
    Deadlock,
    NotHolder,
    WithinOver,
    KeyReused,
    TimedOut,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    Renewed(u64),
    Ended,
    Over,
    NotHolder,
    Unknown,
}

#[derive(Debug, Clone)]
struct Keyed {
    token: u64,
    want: Want,
    ended: Option<(End, u64)>,
}

#[derive(Debug, Default, Clone)]
pub struct Naive {
    pub now: u64,
    pub last_token: u64,
    pub leases: BTreeMap<u64, Held>,
    closures: BTreeMap<u64, (Vec<Resource>, u64)>,
    waiters: Vec<Waiting>,
    keys: Vec<Keyed>,
    last_waiter: u64,
    pub settled: Vec<(u64, Answer)>,
    /// In the order in which they ended.
    pub ended: Vec<(u64, End)>,
    pub gone: BTreeSet<u64>,
}

fn at_odds(a: (&[Resource], Mode), b: (&[Resource], Mode)) -> bool {
    let both_shared = a.1 == Mode::Shared && b.1 == Mode::Shared;
    !both_shared && a.0.iter().any(|x| b.0.iter().any(|y| x.overlaps(y)))
}

impl Waiting {
    fn wants(&self) -> (&[Resource], Mode) {
        (&self.want.resources, self.want.mode)
    }
}

impl Held {
    fn holds(&self) -> (&[Resource], Mode) {
        (&self.resources, self.mode)
    }
}

pub const KEEP: u64 = tenure_core::limits::IDEMPOTENCY_KEEP_MS;

impl Naive {
    pub fn new(now: u64, last_token: u64) -> Naive {
        Naive { now, last_token, ..Naive::default() }
    }

    pub fn advance(&mut self, now: u64) {
        self.now = now;
        loop {
            let leases = self.leases.values().map(|l| (l.expires_at, 0, l.token));
            let waits = self.waiters.iter().map(|w| (w.deadline, 1, w.id));
            let closures = self.closures.iter().map(|(t, (_, until))| (*until, 2, *t));
            let keys = self.keys.iter().filter_map(|k| k.ended.map(|(_, until)| (until, 3, k.token)));
            let Some((at, what, id)) = leases.chain(waits).chain(closures).chain(keys).min() else { return };
            if at > now {
                return;
            }
            match what {
                0 => self.end(id, End::Expired),
                1 => {
                    self.waiters.retain(|w| w.id != id);
                    self.settled.push((id, Answer::TimedOut));
                }
                2 => drop(self.closures.remove(&id)),
                _ => self.keys.retain(|k| k.token != id),
            }
            self.serve();
        }
    }

    pub fn acquire(&mut self, mut want: Want) -> Answer {
        let mut seen = Vec::new();
        want.resources.retain(|r| {
            !seen.contains(r) && {
                seen.push(r.clone());
                true
            }
        });
        if let Some(answer) = self.answer_again(&want) {
            return answer;
        }
        let chain = match self.chain(&want) {
            Ok(chain) => chain,
            Err(answer) => return answer,
        };
        if !self.is_blocked(&want, &chain, u64::MAX) {
            return Answer::Granted(self.grant(want));
        }
        let Some(wait) = want.wait.filter(|wait| *wait > 0) else { return Answer::Held };
        if self.closes_cycle(&want, &chain) {
            return Answer::Deadlock;
        }
        self.last_waiter += 1;
        self.waiters.push(Waiting { id: self.last_waiter, want, chain, deadline: self.now + wait });
        Answer::Queued(self.last_waiter)
    }

    fn answer_again(&mut self, want: &Want) -> Option<Answer> {
        want.key.as_ref()?;
        let is_same = |other: &Want| {
            (&other.resources, other.mode, other.ttl, other.grace, other.within)
                == (&want.resources, want.mode, want.ttl, want.grace, want.within)
        };
        let named = |other: &Want| other.holder == want.holder && other.key == want.key;
        if let Some(keyed) = self.keys.iter().find(|k| named(&k.want)) {
            let answer = match keyed.ended {
                Some((end, _)) => Answer::Ended(keyed.token, end),
                None => Answer::Granted(keyed.token),
            };
            return Some(if is_same(&keyed.want) { answer } else { Answer::KeyReused });
        }
        let waiter = self.waiters.iter_mut().find(|w| named(&w.want))?;
        if !is_same(&waiter.want) {
            return Some(Answer::KeyReused);
        }
        waiter.deadline = waiter.deadline.max(self.now + want.wait.unwrap_or(0));
        Some(Answer::Queued(waiter.id))
    }

    fn chain(&self, want: &Want) -> Result<Vec<u64>, Answer> {
        let mut chain = Vec::new();
        let mut next = want.within;
        while let Some(token) = next {
            let lease = self.leases.get(&token).ok_or(Answer::WithinOver)?;
            if lease.holder != want.holder {
                return Err(Answer::NotHolder);
            }
            chain.push(token);
            next = lease.within;
        }
        Ok(chain)
    }

    /// Whether a wait is behind one of these leases anyway.
    fn is_behind(&self, waiter: &Waiting, chain: &[u64]) -> bool {
        chain.iter().any(|token| self.leases.get(token).is_some_and(|lease| at_odds(lease.holds(), waiter.wants())))
    }

    fn is_blocked(&self, want: &Want, chain: &[u64], place: u64) -> bool {
        let mine = (&want.resources[..], want.mode);
        self.leases.values().any(|lease| !chain.contains(&lease.token) && at_odds(lease.holds(), mine))
            || self
                .closures
                .values()
                .any(|(closed, _)| closed.iter().any(|c| want.resources.iter().any(|r| r.overlaps(c))))
            || self.waiters.iter().any(|w| w.id < place && at_odds(w.wants(), mine) && !self.is_behind(w, chain))
    }

    fn grant(&mut self, want: Want) -> u64 {
        self.last_token += 1;
        let token = self.last_token;
        let held = Held {
            token,
            resources: want.resources.clone(),
            holder: want.holder.clone(),
            mode: want.mode,
            expires_at: self.now + want.ttl,
            ttl: want.ttl,
            grace: want.grace,
            within: want.within,
        };
        self.leases.insert(token, held);
        if want.key.is_some() {
            self.keys.push(Keyed { token, want, ended: None });
        }
        token
    }

    /// Who waits for whom, as a plain set of pairs.
    fn edges(&self) -> BTreeSet<(Holder, Holder)> {
        let mut edges = BTreeSet::new();
        for (at, waiter) in self.waiters.iter().enumerate() {
            for holder in self.waits_for(&waiter.want, &waiter.chain, &self.waiters[..at]) {
                edges.insert((waiter.want.holder.clone(), holder));
            }
        }
        edges
    }

    fn waits_for(&self, want: &Want, chain: &[u64], before: &[Waiting]) -> Vec<Holder> {
        let mine = (&want.resources[..], want.mode);
        let leases = self.leases.values().filter(|l| !chain.contains(&l.token) && at_odds(l.holds(), mine));
        let waits = before.iter().filter(|w| at_odds(w.wants(), mine) && !self.is_behind(w, chain));
        leases.map(|l| l.holder.clone()).chain(waits.map(|w| w.want.holder.clone())).collect()
    }

    fn closes_cycle(&self, want: &Want, chain: &[u64]) -> bool {
        let edges = self.edges();
        let mut reached: BTreeSet<Holder> = self.waits_for(want, chain, &self.waiters).into_iter().collect();
        loop {
            let next: Vec<Holder> = edges
                .iter()
                .filter(|(from, to)| reached.contains(from) && !reached.contains(to))
                .map(|e| e.1.clone())
                .collect();
            if next.is_empty() {
                return reached.contains(&want.holder);
            }
            reached.extend(next);
        }
    }

    fn serve(&mut self) {
        let mut at = 0;
        while at < self.waiters.len() {
            let waiter = self.waiters[at].clone();
            if self.is_blocked(&waiter.want, &waiter.chain, waiter.id) {
                at += 1;
                continue;
            }
            self.waiters.remove(at);
            if !self.gone.contains(&waiter.id) {
                let token = self.grant(waiter.want);
                self.settled.push((waiter.id, Answer::Granted(token)));
            }
            at = 0;
        }
    }

    fn end(&mut self, token: u64, end: End) {
        let children: Vec<u64> = self.leases.values().filter(|l| l.within == Some(token)).map(|l| l.token).collect();
        for child in children {
            self.end(child, end);
        }
        let Some(lease) = self.leases.remove(&token) else { return };
        self.ended.push((token, end));
        for keyed in self.keys.iter_mut().filter(|k| k.token == token) {
            keyed.ended = Some((end, self.now + KEEP));
        }
        if lease.grace > 0 && end != End::Released {
            self.closures.insert(token, (lease.resources.clone(), self.now + lease.grace));
        }
        let nested: Vec<u64> = self.waiters.iter().filter(|w| w.chain.contains(&token)).map(|w| w.id).collect();
        for id in nested {
            self.waiters.retain(|w| w.id != id);
            self.settled.push((id, Answer::WithinOver));
        }
    }

    pub fn renew(&mut self, token: u64, holder: &Holder, ttl: Option<u64>) -> Kept {
        let now = self.now;
        let last = self.last_token;
        match self.leases.get_mut(&token) {
            None if token <= last => Kept::Over,
            None => Kept::Unknown,
            Some(lease) if lease.holder != *holder => Kept::NotHolder,
            Some(lease) => {
                lease.ttl = ttl.unwrap_or(lease.ttl);
                lease.expires_at = now + lease.ttl;
                Kept::Renewed(lease.expires_at)
            }
        }
    }

    pub fn finish(&mut self, token: u64, holder: Option<&Holder>) -> Kept {
        let end = if holder.is_some() { End::Released } else { End::Revoked };
        match self.leases.get(&token) {
            None if token <= self.last_token => Kept::Over,
            None => Kept::Unknown,
            Some(lease) if holder.is_some_and(|holder| lease.holder != *holder) => Kept::NotHolder,
            Some(_) => {
                self.end(token, end);
                self.serve();
                Kept::Ended
            }
        }
    }

    pub fn leave(&mut self, waiter: u64) {
        self.waiters.retain(|w| w.id != waiter);
        self.serve();
    }

    pub fn waiting(&self) -> Vec<u64> {
        self.waiters.iter().map(|w| w.id).collect()
    }

    /// A new life: those in line are gone, every lease runs at least its ttl from now.
    pub fn reopen(&mut self, now: u64, first_token: u64) {
        self.now = now;
        self.last_token = first_token;
        self.waiters.clear();
        self.gone.clear();
        self.last_waiter = 0;
        for lease in self.leases.values_mut() {
            lease.expires_at = lease.expires_at.max(now + lease.ttl);
        }
    }
}
