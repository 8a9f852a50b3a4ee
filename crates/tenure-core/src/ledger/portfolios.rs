//! Owns the portfolios in memory and what happens to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::change::{Change, Record};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::intent::Intent;
use crate::ledger::{Ledger, Turn};
use crate::limits::{PAGE_MAX, PORTFOLIO_MEMBERS_MAX, PORTFOLIOS_MAX};
use crate::patch::check_size;
use crate::portfolio::{Member, Portfolio, PortfolioStatus, Role};
use crate::serial::{IntentId, PortfolioId};
use crate::{Holder, Resource};

/// Every portfolio, and which ones an intent is in.
#[derive(Default)]
pub(crate) struct Portfolios {
    by_id: BTreeMap<PortfolioId, Arc<Portfolio>>,
    by_intent: HashMap<IntentId, Vec<PortfolioId>>,
}

impl Portfolios {
    pub(crate) fn find(&self, id: PortfolioId) -> Result<&Arc<Portfolio>, Refusal> {
        self.by_id.get(&id).ok_or_else(|| Refusal::unknown("portfolio", id))
    }

    pub(crate) fn of_intent(&self, id: IntentId) -> &[PortfolioId] {
        self.by_intent.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn put(&mut self, portfolio: Arc<Portfolio>) {
        if let Some(old) = self.by_id.insert(portfolio.id, Arc::clone(&portfolio)) {
            for member in &old.members {
                self.by_intent.entry(member.intent).and_modify(|ids| ids.retain(|id| *id != old.id));
            }
        }
        for member in &portfolio.members {
            self.by_intent.entry(member.intent).or_default().push(portfolio.id);
        }
    }
}

/// Make a portfolio.
#[derive(Debug, Clone)]
pub struct CreatePortfolio {
    /// Its name.
    pub name: Box<str>,
    /// In more words.
    pub description: Option<String>,
    /// Whose it is.
    pub created_by: Holder,
    /// A policy that is kept.
    pub governance: Map<String, Value>,
    /// The maker's own notes.
    pub metadata: Map<String, Value>,
}

impl Command for CreatePortfolio {
    type Reply = Result<Arc<Portfolio>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        if ledger.portfolios.by_id.len() >= PORTFOLIOS_MAX {
            return Err(Refusal::Limit { what: "the number of portfolios", max: PORTFOLIOS_MAX });
        }
        let portfolio = Portfolio {
            id: PortfolioId(ledger.serial()),
            name: self.name,
            description: self.description,
            created_by: self.created_by.clone(),
            status: PortfolioStatus::Active,
            governance: check_size(self.governance)?,
            metadata: check_size(self.metadata)?,
            created_at: turn.now(),
            updated_at: turn.now(),
            members: Vec::new(),
        };
        let said = json!({ "name": portfolio.name });
        Ok(ledger.put_portfolio(turn, portfolio, EventKind::PortfolioCreated, &self.created_by, said))
    }
}

impl Ledger {
    fn put_portfolio(
        &mut self,
        turn: &mut Turn<'_>,
        portfolio: Portfolio,
        kind: EventKind,
        by: &Holder,
        said: Value,
    ) -> Arc<Portfolio> {
        let portfolio = Arc::new(Portfolio { updated_at: turn.now(), ..portfolio });
        turn.changes.push(Change::Put(Record::Portfolio(Arc::clone(&portfolio))));
        self.portfolios.put(Arc::clone(&portfolio));
        let resource = Resource::parse(&format!("portfolio:{}", portfolio.id)).ok();
        self.emit(turn, Event { by: Some(by.clone()), ..Event::about(kind, turn.now(), resource, said) });
        portfolio
    }

    /// Moves a portfolio to another status.
    pub(crate) fn set_portfolio_status(
        &mut self,
        turn: &mut Turn<'_>,
        id: PortfolioId,
        status: PortfolioStatus,
        by: &Holder,
    ) {
        if let Ok(portfolio) = self.portfolios.find(id) {
            let changed = Portfolio { status, ..Portfolio::clone(portfolio) };
            self.put_portfolio(turn, changed, EventKind::PortfolioStatusChanged, by, json!({ "status": status }));
        }
    }
}

/// What to do with a portfolio. Portfolios have no access list of their own: who may read an intent may put it in one.
#[derive(Debug, Clone)]
pub enum PortfolioChange {
    /// Move it to another status.
    Status(PortfolioStatus),
    /// Take an intent in, or give it another role.
    Add(IntentId, Role, i64),
    /// Take an intent out.
    Remove(IntentId),
}

/// Change a portfolio.
#[derive(Debug, Clone)]
pub struct ChangePortfolio {
    /// Which.
    pub id: PortfolioId,
    /// Who.
    pub caller: Caller,
    /// What.
    pub change: PortfolioChange,
}

impl Command for ChangePortfolio {
    type Reply = Result<Arc<Portfolio>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let mut changed = Portfolio::clone(ledger.portfolios.find(self.id)?);
        let (kind, said) = match self.change {
            PortfolioChange::Status(status) => {
                changed.status = status;
                (EventKind::PortfolioStatusChanged, json!({ "status": status }))
            }
            PortfolioChange::Add(intent, role, priority) => {
                ledger.open_intent(turn, intent, &self.caller, Permission::Read)?;
                changed.members.retain(|member| member.intent != intent);
                if changed.members.len() >= PORTFOLIO_MEMBERS_MAX {
                    return Err(Refusal::Limit {
                        what: "the number of intents in a portfolio",
                        max: PORTFOLIO_MEMBERS_MAX,
                    });
                }
                changed.members.push(Member { intent, role, priority, added_at: turn.now() });
                (EventKind::PortfolioIntentAdded, json!({ "intent_id": intent, "role": role, "priority": priority }))
            }
            PortfolioChange::Remove(intent) => {
                if !changed.members.iter().any(|member| member.intent == intent) {
                    return Err(Refusal::unknown("member", intent));
                }
                changed.members.retain(|member| member.intent != intent);
                (EventKind::PortfolioIntentRemoved, json!({ "intent_id": intent }))
            }
        };
        Ok(ledger.put_portfolio(turn, changed, kind, &self.caller.holder, said))
    }
}

/// A portfolio with its intents.
#[derive(Debug, Clone)]
pub struct PortfolioView {
    /// The portfolio.
    pub portfolio: Arc<Portfolio>,
    /// Its intents that the caller may read, in the order in which they came.
    pub intents: Vec<Arc<Intent>>,
}

/// Look a portfolio up.
#[derive(Debug, Clone)]
pub struct GetPortfolio {
    /// Which.
    pub id: PortfolioId,
    /// Who asks.
    pub caller: Caller,
}

impl Command for GetPortfolio {
    type Reply = Result<PortfolioView, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let portfolio = Arc::clone(ledger.portfolios.find(self.id)?);
        let members = portfolio.members.iter().filter_map(|member| ledger.intents.get(member.intent));
        let readable = members.filter(|intent| intent.allows(&self.caller, Permission::Read, turn.now()));
        let intents = readable.cloned().collect();
        Ok(PortfolioView { portfolio, intents })
    }
}

/// List portfolios, the oldest first.
#[derive(Debug, Clone, Default)]
pub struct ListPortfolios {
    /// Only those of this maker.
    pub created_by: Option<Holder>,
    /// Only those with this intent.
    pub intent: Option<IntentId>,
}

impl Command for ListPortfolios {
    type Reply = Vec<Arc<Portfolio>>;

    fn decide(self, ledger: &mut Ledger, _turn: &mut Turn<'_>) -> Self::Reply {
        let all: Box<dyn Iterator<Item = &Arc<Portfolio>>> = match self.intent {
            Some(intent) => {
                let ids = ledger.portfolios.of_intent(intent).iter();
                Box::new(ids.filter_map(|id| ledger.portfolios.by_id.get(id)))
            }
            None => Box::new(ledger.portfolios.by_id.values()),
        };
        let of_maker = all.filter(|portfolio| self.created_by.as_ref().is_none_or(|by| portfolio.created_by == *by));
        of_maker.take(PAGE_MAX).cloned().collect()
    }
}
