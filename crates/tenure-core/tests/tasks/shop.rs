//! A ledger with a clock of its own, workflows made in a line, and workers that poll by name.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::change::{Change, Head, Record, RecordKind, in_full};
use tenure_core::command::{Command, Tick, WaiterId};
use tenure_core::event::{Event, EventKind};
use tenure_core::flow::command::{
    Again, Control, DefineFlows, Evaluated, FlowRefusal, FlowView, GetFlow, GotFlow, Revive, StartFlow, Steer, Which,
};
use tenure_core::flow::{Archived, FlowStatus, Op, Plan, Step};
use tenure_core::id::{FlowId, TaskId};
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::task::command::{
    Act, Claimant, DefineTasks, Outcome, Poll, Polled, QueueName, TaskView, Update, UpdateStep, Updated,
};
use tenure_core::task::{Status, TaskDef, TaskRules, to_json};
use tenure_core::{Epoch, Holder, Ledger, Timestamp, Token, Turn};

pub const GRACE_MS: u64 = 1_000;

pub struct Shop {
    pub ledger: Ledger,
    pub now: u64,
    pub events: Vec<Event>,
    pub polled: Vec<(WaiterId, Vec<TaskView>)>,
    pub gone: Vec<WaiterId>,
    /// What a store would have.
    pub records: std::collections::BTreeMap<(RecordKind, String), String>,
}

impl Shop {
    pub fn new() -> Shop {
        let ledger = Ledger::open(Head::default(), Epoch(1));
        Shop { ledger, now: 1_000_000, events: vec![], polled: vec![], gone: vec![], records: Default::default() }
    }

    pub fn apply<C: Command>(&mut self, command: C) -> C::Reply {
        self.turn(|ledger, turn| ledger.apply(turn, command))
    }

    fn turn<T>(&mut self, act: impl FnOnce(&mut Ledger, &mut Turn<'_>) -> T) -> T {
        let gone = self.gone.clone();
        let is_waiting = |waiter| !gone.contains(&waiter);
        let mut turn = Turn::new(Timestamp::from_unix_ms(self.now), &is_waiting);
        let reply = act(&mut self.ledger, &mut turn);
        let (changes, mut events, mut polled) = (turn.changes, turn.events, turn.polled);
        for change in in_full(changes, &events) {
            self.store(change);
        }
        self.events.append(&mut events);
        self.polled.append(&mut polled);
        reply
    }

    fn store(&mut self, change: Change) {
        match change {
            Change::Put(record) => {
                let key = (record.kind(), record.id().0);
                let value = record.to_json().unwrap();
                Record::decode(key.0, &value).expect("a record reads back");
                self.records.insert(key, value);
            }
            Change::Delete(kind, id) => drop(self.records.remove(&(kind, id.0))),
            Change::Renewed(..) => {}
            Change::Granted(_) | Change::Ended(_) => panic!("not in full"),
        }
    }

    /// A second ledger from what the first one wrote: a crash and a start.
    pub fn restart(&mut self) {
        let head = self.ledger.head();
        self.ledger = Ledger::open(head, Epoch(head.epoch.0 + 1));
        for kind in RecordKind::ALL.into_iter().filter(|kind| kind.is_live()) {
            for ((_, _), value) in self.records.iter().filter(|((of, _), _)| *of == kind) {
                self.ledger.restore(Record::decode(kind, value).unwrap());
            }
        }
        self.turn(|ledger, turn| ledger.start(turn));
    }

    pub fn after(&mut self, ms: u64) -> &mut Shop {
        // As the engine does: every deadline on the way is served at its time.
        let end = self.now + ms;
        while let Some(at) = self.ledger.next_deadline().map(|at| at.unix_ms()).filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.apply(Tick);
        }
        self.now = end;
        self.apply(Tick);
        self
    }

    pub fn define_task(&mut self, name: &str, change: impl FnOnce(&mut TaskRules)) {
        let mut rules = rules();
        change(&mut rules);
        let def = TaskDef { name: name.into(), rules: Arc::new(rules), document: to_json(&json!({ "name": name })) };
        self.apply(DefineTasks { defs: vec![def], must_exist: false }).unwrap();
    }

    pub fn define(&mut self, plan: Plan) {
        self.apply(DefineFlows { plans: vec![plan], overwrite: true }).remove(0).unwrap();
    }

    pub fn start(&mut self, name: &str, input: Value) -> FlowId {
        self.apply(StartFlow::new(Which::Named(name.into(), None), to_json(&input))).unwrap()
    }

    pub fn poll(&mut self, name: &str, worker: &str) -> Option<TaskView> {
        match self.apply(poll(name, worker)) {
            Polled::Tasks(mut tasks) => tasks.pop(),
            Polled::Queued(_) => panic!("nobody asked to wait"),
        }
    }

    pub fn update(&mut self, task: TaskId, worker: &str, act: Act) -> Outcome {
        self.update_and_next(task, worker, act, false).outcome
    }

    pub fn update_and_next(&mut self, task: TaskId, worker: &str, act: Act, next: bool) -> Updated {
        let next = next.then(|| claimant(worker));
        let by = (!worker.is_empty()).then(|| holder(worker));
        self.apply(Update { task, by, nameless_may_hold: true, token: None, act, logs: vec![], next })
    }

    pub fn done(&mut self, task: TaskId, worker: &str) -> Outcome {
        self.update(task, worker, end(Status::Completed, json!({ "by": worker })))
    }

    pub fn fail(&mut self, task: TaskId, worker: &str) -> Outcome {
        self.update(task, worker, end(Status::Failed, json!({})))
    }

    pub fn update_step(&mut self, flow: FlowId, reference: &str, act: Act) -> Option<TaskId> {
        self.apply(UpdateStep { flow, reference: Some(reference.into()), by: Some(holder("ops")), act })
    }

    pub fn view(&mut self, flow: FlowId) -> FlowView {
        match self.apply(GetFlow { id: flow, with_tasks: true }) {
            GotFlow::Live(view) => *view,
            got => panic!("{flow} is not in memory: {got:?}"),
        }
    }

    /// The run as the store has it after its end.
    pub fn archived(&self, flow: FlowId) -> Archived {
        let key = (RecordKind::Archive, tenure_core::change::RecordId::from(flow).0);
        let value = self.records.get(&key).unwrap_or_else(|| panic!("{flow} is not over"));
        serde_json::from_str(value).unwrap()
    }

    pub fn status(&mut self, flow: FlowId) -> FlowStatus {
        match self.apply(GetFlow { id: flow, with_tasks: false }) {
            GotFlow::Live(view) => view.flow.status,
            _ => self.archived(flow).flow.status,
        }
    }

    pub fn output(&self, flow: FlowId) -> Value {
        serde_json::from_str(self.archived(flow).flow.output.get()).unwrap()
    }

    pub fn control(&mut self, id: FlowId, what: Steer) -> Result<(), FlowRefusal> {
        self.apply(Control { id, what })
    }

    pub fn again(&mut self, id: FlowId, how: Again) -> Result<FlowId, FlowRefusal> {
        let archived = Box::new(self.archived(id));
        self.apply(Revive { archived, how })
    }

    pub fn of_kind(&self, kind: EventKind) -> Vec<&Event> {
        self.events.iter().filter(|event| event.kind == kind).collect()
    }

    /// Answers what the run asks the server's evaluator next.
    pub fn evaluate(&mut self, answer: impl FnOnce(Value) -> tenure_core::flow::command::Answer) {
        let task = self.poll(tenure_core::ledger::EVALUATOR_QUEUE, "evaluator").expect("a question");
        let asked = task.task.extra.as_ref().and_then(|extra| extra.asked.clone()).expect("a question");
        let answer = Ok(answer(serde_json::from_str(asked.get()).unwrap()));
        assert!(self.apply(Evaluated { task: task.task.id, token: task.task.token.unwrap(), answer }));
    }
}

pub fn poll(name: &str, worker: &str) -> Poll {
    Poll { queue: QueueName { name: name.into(), domain: None }, by: claimant(worker), count: 1, wait_ms: 0 }
}

pub fn claimant(worker: &str) -> Claimant {
    Claimant { worker: (!worker.is_empty()).then(|| holder(worker)), grace_ms: GRACE_MS }
}

pub fn holder(name: &str) -> Holder {
    Holder::parse(name).unwrap()
}

pub fn end(status: Status, output: Value) -> Act {
    Act::End { status, output: to_json(&output), reason: (!status.is_success()).then(|| "it did not work".into()) }
}

pub fn give_back(after_s: u64) -> Act {
    Act::Yield { after_s, output: to_json(&json!({ "so": "far" })) }
}

/// Ten seconds of silence, three attempts five seconds apart.
pub fn rules() -> TaskRules {
    TaskRules { response_s: 10, retry: RetryRule::new(Backoff::Fixed, 5_000, 3).unwrap(), ..TaskRules::undefined() }
}

pub fn step(reference: &str, op: Op, input: Value) -> Step {
    Step {
        reference: reference.into(),
        name: reference.into(),
        op,
        input: input.into(),
        next: None,
        optional: false,
        permissive: false,
        delay_s: 0,
        retries: None,
        rules: None,
        document: None,
    }
}

pub fn work(name: &str) -> Step {
    step(name, Op::Work, json!({}))
}

/// A plan whose steps follow each other; those that say what follows them keep it.
pub fn line(name: &str, steps: Vec<Step>) -> Plan {
    let count = steps.len() as u32;
    let follow = |(at, step): (usize, Step)| {
        let next = step.next.or((at as u32 + 1 < count).then_some(at as u32 + 1));
        Arc::new(Step { next, ..step })
    };
    plan(name, steps.into_iter().enumerate().map(follow).collect())
}

/// A plan whose steps say themselves what follows them.
pub fn plan(name: &str, steps: Vec<Arc<Step>>) -> Plan {
    Plan { name: name.into(), version: 1, steps, ..Plan::default() }
}

pub fn token(view: &TaskView) -> Token {
    view.task.token.expect("held")
}
