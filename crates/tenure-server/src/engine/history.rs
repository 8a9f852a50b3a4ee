//! Owns answers that need what is over: a lease that ended is no longer in the ledger, so the store tells how.
//!
//! It is here and not in a door because every door owes its caller the same answer: why, and who holds it now (L5, L6).

use tenure_core::command::{Command, Ending, Get, Got, Release, Renew, Renewal, Revoke};
use tenure_core::event::Event;
use tenure_core::lease::{Lease, Resources};
use tenure_core::refusal::Conflict;
use tenure_core::{Holder, Ledger, Timestamp, Token, Ttl, Turn};
use tenure_store::{EventQuery, Reader};

use super::{Engine, Unavailable};

/// A lease that is over: the event that ended it.
#[derive(Debug, Clone)]
pub struct Ended(pub Event);

/// A lease that is lost to who asked for it.
#[derive(Debug, Clone)]
pub struct Lost {
    /// How it ended.
    pub ended: Ended,
    /// Who or what has its resources now.
    pub current: Option<Conflict>,
    /// The ledger's time of this answer.
    pub now: Timestamp,
}

/// The answer to one renewal.
#[derive(Debug, Clone)]
pub enum Renewed {
    /// It runs on.
    Renewed {
        /// Until when.
        expires_at: Timestamp,
        /// With which ttl.
        ttl: Ttl,
    },
    /// It is over.
    Lost(Box<Lost>),
    /// It is or was someone else's.
    NotHolder(Holder),
    /// No such lease was ever granted, or its history is no longer kept.
    Unknown,
}

/// The answer to a release or a revoke.
#[derive(Debug, Clone)]
pub enum Released {
    /// It is over now: this was it, and this is when it ended.
    Ended(Lease, Timestamp),
    /// It was over before.
    Before(Box<Ended>),
    /// It is or was someone else's; nothing changed.
    NotHolder(Holder),
    /// No such lease was ever granted, or its history is no longer kept.
    Unknown,
}

/// What is known of a lease.
#[derive(Debug, Clone)]
pub enum Found {
    /// It is active.
    Active(Lease),
    /// It is over.
    Ended(Box<Ended>),
    /// No such lease was ever granted, or its history is no longer kept.
    Unknown,
}

impl Engine {
    /// Keeps leases alive; one answer for each, in order.
    pub async fn renew(&self, renew: Renew) -> Result<Vec<Renewed>, Unavailable> {
        let tokens = renew.tokens.clone();
        let holder = renew.holder.clone();
        let renewals = self.decide(|decider| decider.renew(renew)).await?;
        let is_renewed = |renewal: &&Renewal| matches!(renewal, Renewal::Renewed { .. });
        self.metrics().renewed(renewals.iter().filter(is_renewed).count());
        let over: Vec<Token> =
            tokens.iter().zip(&renewals).filter(|(_, renewal)| is_over(renewal)).map(|(t, _)| *t).collect();
        let mut lost = if over.is_empty() { Vec::new() } else { self.lost(over).await? }.into_iter();
        let renewed = renewals.into_iter().map(|renewal| match renewal {
            Renewal::Renewed { expires_at, ttl } => Renewed::Renewed { expires_at, ttl },
            Renewal::NotHolder { holder } => self.not_holder(holder, Renewed::NotHolder),
            Renewal::Unknown => self.unknown(Renewed::Unknown),
            Renewal::Over => self.over(lost.next().flatten(), &holder),
        });
        Ok(renewed.collect())
    }

    /// Gives a lease back.
    pub async fn release(&self, release: Release) -> Result<Released, Unavailable> {
        let (token, holder) = (release.token, release.holder.clone());
        match self.apply(release).await? {
            Ending::Ended(lease, at) => Ok(Released::Ended(lease, at)),
            Ending::NotHolder { holder } => Ok(self.not_holder(holder, Released::NotHolder)),
            Ending::Unknown => Ok(self.unknown(Released::Unknown)),
            // Rare, and in a box: every release would carry the room for it.
            Ending::Over => Ok(match Box::pin(self.ended(token)).await? {
                Some(Ended(event)) if event.holder.as_ref() != Some(&holder) => match event.holder {
                    Some(former) => self.not_holder(former, Released::NotHolder),
                    None => Released::Unknown,
                },
                Some(ended) => Released::Before(Box::new(ended)),
                None => Released::Unknown,
            }),
        }
    }

    /// Takes a lease away.
    pub async fn revoke(&self, revoke: Revoke) -> Result<Released, Unavailable> {
        let token = revoke.token;
        match self.apply(revoke).await? {
            Ending::Ended(lease, at) => Ok(Released::Ended(lease, at)),
            Ending::NotHolder { holder } => Ok(Released::NotHolder(holder)),
            Ending::Unknown => Ok(Released::Unknown),
            Ending::Over => {
                let ended = self.ended(token).await?;
                Ok(ended.map_or(Released::Unknown, |ended| Released::Before(Box::new(ended))))
            }
        }
    }

    /// Looks a lease up, active or over.
    pub async fn find(&self, token: Token) -> Result<Found, Unavailable> {
        match self.apply(Get(token)).await? {
            Got::Active(lease) => Ok(Found::Active(lease)),
            Got::Unknown => Ok(Found::Unknown),
            Got::Over => {
                let ended = self.ended(token).await?;
                Ok(ended.map_or(Found::Unknown, |ended| Found::Ended(Box::new(ended))))
            }
        }
    }

    /// How a lease ended.
    pub async fn ended(&self, token: Token) -> Result<Option<Ended>, Unavailable> {
        self.read(move |reader| end_of(reader, token)).await
    }

    /// What became of leases that are over, in order; nothing about one that the history does not have.
    async fn lost(&self, tokens: Vec<Token>) -> Result<Vec<Option<Lost>>, Unavailable> {
        let find = move |reader: &dyn Reader| tokens.into_iter().map(|token| end_of(reader, token)).collect();
        let ended: Vec<Option<Ended>> = self.read(find).await?;
        let resources = ended.iter().map(|ended| ended.as_ref().map(|Ended(event)| event.resources.clone()));
        let (current, now) = self.apply(WhoHas(resources.map(Option::unwrap_or_default).collect())).await?;
        let lost = |(ended, current): (Option<Ended>, _)| ended.map(|ended| Lost { ended, current, now });
        Ok(ended.into_iter().zip(current).map(lost).collect())
    }

    fn over(&self, lost: Option<Lost>, asked_by: &Holder) -> Renewed {
        let Some(lost) = lost else { return self.unknown(Renewed::Unknown) };
        let Ended(event) = &lost.ended;
        if let Some(former) = event.holder.as_ref().filter(|former| *former != asked_by) {
            return self.not_holder(former.clone(), Renewed::NotHolder);
        }
        self.metrics().refused("lost");
        Renewed::Lost(Box::new(lost))
    }

    fn unknown<T>(&self, answer: T) -> T {
        self.metrics().refused("unknown_lease");
        answer
    }

    fn not_holder<T>(&self, holder: Holder, answer: impl FnOnce(Holder) -> T) -> T {
        self.metrics().refused("not_holder");
        answer(holder)
    }
}

fn is_over(renewal: &Renewal) -> bool {
    matches!(renewal, Renewal::Over)
}

fn end_of(reader: &dyn Reader, token: Token) -> Result<Option<Ended>, tenure_store::Error> {
    let mut query = EventQuery { token: Some(token), ..EventQuery::ends(1) };
    loop {
        let mut page = reader.events(&query)?;
        match page.events.pop() {
            // A page looks at a bounded number of events; more may lie behind an empty one.
            None if page.more => query.before = Some(page.next),
            found => return Ok(found.map(Ended)),
        }
    }
}

/// Who has each of these now, in one go.
struct WhoHas(Vec<Resources>);

impl Command for WhoHas {
    type Reply = (Vec<Option<Conflict>>, Timestamp);

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        (self.0.iter().map(|resources| ledger.who_has(resources)).collect(), turn.now())
    }
}
