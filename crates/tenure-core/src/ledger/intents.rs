//! Owns the intents in memory, how they are made and how they are looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Permission};
use crate::change::{Change, Record};
use crate::command::Command;
use crate::document::Refusal;
use crate::event::{Event, EventKind};
use crate::intent::{Attempts, Intent, RetryPolicy, Status};
use crate::ledger::{Ledger, Turn};
use crate::limits::{DEPENDENCIES_MAX, INTENTS_MAX, PAGE_MAX, RELATIVES_MAX};
use crate::patch::{State, check_size};
use crate::serial::{IntentId, Serial, WorkflowId};
use crate::{Holder, Resource};

/// Every intent, and who is related to whom.
#[derive(Default)]
pub(crate) struct Intents {
    by_id: BTreeMap<IntentId, Arc<Intent>>,
    children: HashMap<IntentId, Vec<IntentId>>,
    dependents: HashMap<IntentId, BTreeSet<IntentId>>,
    by_agent: HashMap<Holder, BTreeSet<IntentId>>,
    /// Those whose next attempt is waited for.
    retrying: BTreeSet<IntentId>,
}

impl Intents {
    pub(crate) fn get(&self, id: IntentId) -> Option<&Arc<Intent>> {
        self.by_id.get(&id)
    }

    pub(crate) fn find(&self, id: IntentId) -> Result<&Arc<Intent>, Refusal> {
        self.get(id).ok_or_else(|| Refusal::unknown("intent", id))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn retrying(&self) -> usize {
        self.retrying.len()
    }

    /// The intents an agent is assigned to.
    pub(crate) fn of_agent(&self, agent: &Holder) -> impl Iterator<Item = &Arc<Intent>> {
        self.by_agent.get(agent).into_iter().flatten().filter_map(|id| self.by_id.get(id))
    }

    fn many(&self, ids: impl IntoIterator<Item = IntentId>) -> Vec<Arc<Intent>> {
        ids.into_iter().filter_map(|id| self.by_id.get(&id).cloned()).collect()
    }

    /// Takes the intent in, in place of its former self.
    pub(crate) fn put(&mut self, intent: Arc<Intent>) {
        let id = intent.id;
        match self.by_id.insert(id, Arc::clone(&intent)) {
            Some(old) => self.forget_relations(&old),
            None => {
                if let Some(parent) = intent.parent {
                    self.children.entry(parent).or_default().push(id);
                }
            }
        }
        for first in &intent.depends_on {
            self.dependents.entry(*first).or_default().insert(id);
        }
        for assignment in &intent.assigned {
            self.by_agent.entry(assignment.agent.clone()).or_default().insert(id);
        }
        if intent.attempts.next_at.is_some() {
            self.retrying.insert(id);
        }
    }

    fn forget_relations(&mut self, old: &Intent) {
        for first in &old.depends_on {
            if let Some(ids) = self.dependents.get_mut(first) {
                ids.remove(&old.id);
            }
        }
        for assignment in &old.assigned {
            if let Some(ids) = self.by_agent.get_mut(&assignment.agent) {
                ids.remove(&old.id);
                if ids.is_empty() {
                    self.by_agent.remove(&assignment.agent);
                }
            }
        }
        self.retrying.remove(&old.id);
    }

    /// Whether `id` comes before `other`, directly or not; looks at a bounded number of intents.
    pub(crate) fn comes_before(&self, id: IntentId, other: IntentId) -> Result<bool, Refusal> {
        let mut seen = BTreeSet::from([other]);
        let mut open = vec![other];
        while let Some(at) = open.pop() {
            if at == id {
                return Ok(true);
            }
            let before = self.get(at).map_or(&[][..], |intent| &intent.depends_on);
            open.extend(before.iter().filter(|first| seen.insert(**first)));
            if seen.len() > RELATIVES_MAX {
                return Err(Refusal::Limit {
                    what: "the number of intents in one chain of dependencies",
                    max: RELATIVES_MAX,
                });
            }
        }
        Ok(false)
    }

    /// Whether everything that comes first is completed.
    pub(crate) fn is_ready(&self, intent: &Intent) -> bool {
        let is_done = |id: &IntentId| self.get(*id).is_none_or(|first| first.status == Status::Completed);
        intent.depends_on.iter().all(is_done)
    }
}

/// Make an intent.
#[derive(Debug, Clone)]
pub struct CreateIntent {
    /// What it is about.
    pub title: Box<str>,
    /// In more words.
    pub description: String,
    /// What it starts with.
    pub state: State,
    /// What must be observed.
    pub constraints: Map<String, Value>,
    /// The intent it is a part of.
    pub parent: Option<IntentId>,
    /// The intents that come first.
    pub depends_on: Vec<IntentId>,
    /// A policy that is kept.
    pub governance: Option<Value>,
    /// Whose it is.
    pub created_by: Holder,
}

impl Command for CreateIntent {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let caller = Caller { holder: self.created_by.clone(), is_admin: false };
        if let Some(parent) = self.parent {
            ledger.open_intent(turn, parent, &caller, Permission::Write)?;
        }
        for first in &self.depends_on {
            ledger.intents.find(*first)?;
        }
        ledger.create_intent(turn, self, None, None)
    }
}

impl Ledger {
    pub(crate) fn serial(&self) -> Serial {
        Serial::of(self.head.epoch, self.head.cursor.next())
    }

    pub(crate) fn create_intent(
        &mut self,
        turn: &mut Turn<'_>,
        new: CreateIntent,
        retry: Option<RetryPolicy>,
        workflow: Option<WorkflowId>,
    ) -> Result<Arc<Intent>, Refusal> {
        if self.intents.len() >= INTENTS_MAX {
            return Err(Refusal::Limit { what: "the number of intents", max: INTENTS_MAX });
        }
        let mut depends_on = new.depends_on;
        depends_on.sort_unstable();
        depends_on.dedup();
        check_dependencies(depends_on.len())?;
        let intent = Intent {
            id: IntentId(self.serial()),
            title: new.title,
            description: new.description,
            status: Status::Draft,
            version: 1,
            state: check_size(new.state)?,
            constraints: check_size(new.constraints)?,
            parent: new.parent,
            depends_on,
            created_by: new.created_by,
            created_at: turn.now(),
            updated_at: turn.now(),
            governance: new.governance,
            assigned: Vec::new(),
            access: crate::access::Access::default(),
            retry,
            attempts: Attempts::default(),
            workflow,
        };
        let said = json!({ "title": intent.title, "version": 1 });
        let by = intent.created_by.clone();
        let intent = self.put_intent(turn, intent);
        self.tell(turn, EventKind::IntentCreated, &intent, &by, said);
        Ok(intent)
    }

    /// Writes the intent down.
    pub(crate) fn put_intent(&mut self, turn: &mut Turn<'_>, intent: Intent) -> Arc<Intent> {
        let intent = Arc::new(intent);
        turn.changes.push(Change::Put(Record::Intent(Arc::clone(&intent))));
        self.intents.put(Arc::clone(&intent));
        intent
    }

    /// Says what happened to an intent.
    pub(crate) fn tell(&mut self, turn: &mut Turn<'_>, kind: EventKind, intent: &Intent, by: &Holder, said: Value) {
        let event = Event { by: Some(by.clone()), ..Event::about(kind, turn.now(), whole(intent.id), said) };
        self.emit(turn, event);
    }

    /// The intent, if the caller may do that with it.
    pub(crate) fn open_intent(
        &self,
        turn: &Turn<'_>,
        id: IntentId,
        caller: &Caller,
        needs: Permission,
    ) -> Result<Arc<Intent>, Refusal> {
        let intent = self.intents.find(id)?;
        if !intent.allows(caller, needs, turn.now()) {
            return Err(Refusal::NotAllowed { holder: caller.holder.clone(), intent: id, needs });
        }
        Ok(Arc::clone(intent))
    }
}

pub(crate) fn check_dependencies(count: usize) -> Result<(), Refusal> {
    if count > DEPENDENCIES_MAX {
        return Err(Refusal::Limit { what: "the number of dependencies of one intent", max: DEPENDENCIES_MAX });
    }
    Ok(())
}

/// The resource of a whole intent. Ids are names, so it is always one.
pub(crate) fn whole(id: IntentId) -> Option<Resource> {
    Resource::parse(&format!("intent:{id}/*")).ok()
}

/// Look one intent up.
#[derive(Debug, Clone)]
pub struct GetIntent {
    /// Which.
    pub id: IntentId,
    /// Who asks.
    pub caller: Caller,
}

impl Command for GetIntent {
    type Reply = Result<Arc<Intent>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        ledger.open_intent(turn, self.id, &self.caller, Permission::Read)
    }
}

/// List intents, the oldest first: those the caller may read.
#[derive(Debug, Clone)]
pub struct ListIntents {
    /// Only those that stand so.
    pub status: Option<Status>,
    /// Not the first so many.
    pub offset: usize,
    /// At most so many.
    pub limit: usize,
    /// Who asks.
    pub caller: Caller,
}

impl Command for ListIntents {
    type Reply = Vec<Arc<Intent>>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let all =
            ledger.intents.by_id.values().filter(|intent| self.status.is_none_or(|status| intent.status == status));
        let readable = all.filter(|intent| intent.allows(&self.caller, Permission::Read, turn.now()));
        readable.skip(self.offset).take(self.limit.min(PAGE_MAX)).cloned().collect()
    }
}

/// Which relatives of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kin {
    /// Its parts.
    Children,
    /// Its parts and theirs.
    Descendants,
    /// What it is a part of, the nearest first.
    Ancestors,
    /// What comes first.
    Dependencies,
    /// What comes after.
    Dependents,
    /// Unfinished parts that nothing stands before.
    Ready,
    /// Unfinished parts that something stands before.
    Blocked,
}

/// Look the relatives of an intent up: those the caller may read, a bounded number.
#[derive(Debug, Clone)]
pub struct Relatives {
    /// Of which.
    pub id: IntentId,
    /// Which ones.
    pub kin: Kin,
    /// Who asks.
    pub caller: Caller,
}

impl Command for Relatives {
    type Reply = Result<Vec<Arc<Intent>>, Refusal>;

    fn decide(self, ledger: &mut Ledger, turn: &mut Turn<'_>) -> Self::Reply {
        let intent = ledger.open_intent(turn, self.id, &self.caller, Permission::Read)?;
        let mut found = ledger.intents.relatives(&intent, self.kin);
        found.retain(|relative| relative.allows(&self.caller, Permission::Read, turn.now()));
        Ok(found)
    }
}

impl Intents {
    fn relatives(&self, intent: &Intent, kin: Kin) -> Vec<Arc<Intent>> {
        let children = || self.children.get(&intent.id).into_iter().flatten().copied().take(RELATIVES_MAX);
        let unfinished = |ready: bool| {
            let mut found = self.many(children());
            found.retain(|child| !child.status.is_finished() && self.is_ready(child) == ready);
            found
        };
        match kin {
            Kin::Children => self.many(children()),
            Kin::Descendants => self.descendants(intent.id),
            Kin::Ancestors => {
                let up = |below: &Arc<Intent>| self.get(below.parent?).cloned();
                std::iter::successors(intent.parent.and_then(|id| self.get(id).cloned()), up)
                    .take(RELATIVES_MAX)
                    .collect()
            }
            Kin::Dependencies => self.many(intent.depends_on.iter().copied()),
            Kin::Dependents => {
                self.many(self.dependents.get(&intent.id).into_iter().flatten().copied().take(RELATIVES_MAX))
            }
            Kin::Ready => unfinished(true),
            Kin::Blocked => unfinished(false),
        }
    }

    fn descendants(&self, id: IntentId) -> Vec<Arc<Intent>> {
        let mut found: Vec<IntentId> = Vec::new();
        let mut at = id;
        for next in 0.. {
            let room = RELATIVES_MAX - found.len();
            found.extend(self.children.get(&at).into_iter().flatten().take(room));
            match found.get(next) {
                Some(below) => at = *below,
                None => break,
            }
        }
        self.many(found)
    }
}
