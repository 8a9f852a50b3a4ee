//! T5 against an interpreter: random graphs of choices, forks and loops, worked through in random order with crashes in between.
//!
//! The interpreter keeps no state: from the graph and the names of what is done follows what can be worked on now. After every
//! answer the ledger must offer exactly that; also when the run is run again from one of its tasks after its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use tenure_core::flow::command::Again;
use tenure_core::flow::{Branch, Choice, FlowStatus, Looping, Op, Step};
use tenure_core::id::{FlowId, TaskId};
use tenure_core::task::Status;
use tenure_core::task::command::Outcome;

use crate::shop::{Shop, end, plan, step, work};

#[derive(Debug, Clone)]
enum Node {
    /// A worker does it.
    Work(usize),
    /// One of several ways, some of them empty; the number chooses, and may choose none.
    Switch(usize, Vec<Vec<Node>>),
    /// All ways; each ends with work, which the join waits for.
    Fork(Vec<Vec<Node>>),
    /// So many rounds.
    Loop(usize, Vec<Node>),
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let leaf = Just(Node::Work(0));
    let node = leaf.prop_recursive(3, 20, 3, |inner| {
        let way = prop::collection::vec(inner.clone(), 0..3);
        let full = prop::collection::vec(inner, 1..3);
        prop_oneof![
            2 => Just(Node::Work(0)),
            1 => (0..4usize, prop::collection::vec(way.clone(), 1..4)).prop_map(|(choice, ways)| Node::Switch(choice, ways)),
            1 => prop::collection::vec(way, 1..4).prop_map(Node::Fork),
            1 => (0..4usize, full).prop_map(|(rounds, body)| Node::Loop(rounds, body)),
        ]
    });
    prop::collection::vec(node, 1..4).prop_map(|mut nodes| {
        settle(&mut nodes, &mut 0);
        nodes
    })
}

/// Gives every piece of work its number, and ends the ways of forks with work.
fn settle(nodes: &mut [Node], count: &mut usize) {
    for node in nodes {
        match node {
            Node::Work(number) => {
                *number = *count;
                *count += 1;
            }
            Node::Switch(_, ways) => ways.iter_mut().for_each(|way| settle(way, count)),
            Node::Fork(ways) => {
                for way in ways {
                    way.push(Node::Work(0));
                    settle(way, count);
                }
            }
            Node::Loop(_, body) => settle(body, count),
        }
    }
}

/// Whether all of it is done; what can be worked on now is added to `ready`.
fn interpret(nodes: &[Node], round: &str, done: &BTreeSet<String>, ready: &mut BTreeSet<String>) -> bool {
    nodes.iter().all(|node| match node {
        Node::Work(number) => {
            let name = format!("n{number}{round}");
            let is_done = done.contains(&name);
            if !is_done {
                ready.insert(name);
            }
            is_done
        }
        Node::Switch(choice, ways) => ways.get(*choice).is_none_or(|way| interpret(way, round, done, ready)),
        // Every way is looked at, also after one that is not done.
        Node::Fork(ways) => ways.iter().filter(|way| !interpret(way, round, done, ready)).count() == 0,
        Node::Loop(rounds, body) => (1..=*rounds).all(|at| interpret(body, &format!("{round}__{at}"), done, ready)),
    })
}

/// All that can be done while this piece of work is not.
fn without(nodes: &[Node], name: &str) -> BTreeSet<String> {
    let mut done = BTreeSet::new();
    loop {
        let mut ready = BTreeSet::new();
        interpret(nodes, "", &done, &mut ready);
        ready.remove(name);
        if ready.is_empty() {
            return done;
        }
        done.append(&mut ready);
    }
}

#[derive(Default)]
struct Builder {
    steps: Vec<Option<Step>>,
}

impl Builder {
    /// Adds the steps of a way; the first of them, or what follows if there are none.
    fn way(&mut self, nodes: &[Node], after: Option<u32>) -> Option<u32> {
        nodes.iter().rev().fold(after, |next, node| Some(self.node(node, next)))
    }

    fn node(&mut self, node: &Node, next: Option<u32>) -> u32 {
        let at = self.steps.len() as u32;
        self.steps.push(None);
        let placed = |step: Step, next| Some(Step { next, ..step });
        let made = match node {
            Node::Work(number) => placed(Step { name: "a".into(), ..work(&format!("n{number}")) }, next),
            Node::Switch(choice, ways) => {
                let first = |builder: &mut Builder, way: &Vec<Node>| match way.is_empty() {
                    true => None,
                    false => builder.way(way, next),
                };
                let case = |(number, way)| Branch { case: format!("c{number}").into(), first: first(self, way) };
                let cases = ways.iter().enumerate().map(case).collect();
                let op = Op::Switch { by: Choice::Param("on".into()), cases, default: None };
                placed(step(&format!("s{at}"), op, json!({ "on": format!("c{choice}") })), next)
            }
            Node::Fork(ways) => {
                let join = self.steps.len() as u32;
                let on = ways.iter().filter_map(|way| match way.last() {
                    Some(Node::Work(number)) => Some(Arc::from(format!("n{number}"))),
                    _ => None,
                });
                let on = Op::Join { on: on.collect() };
                self.steps.push(placed(step(&format!("j{at}"), on, json!({})), next));
                let ways = ways.iter().filter_map(|way| self.way(way, None)).collect();
                placed(step(&format!("f{at}"), Op::Fork { ways }, json!({})), Some(join))
            }
            Node::Loop(rounds, body) => {
                let body = self.way(body, None).expect("a body");
                let items: Vec<usize> = (0..*rounds).collect();
                let until = Looping::Items(json!(items).into());
                placed(step(&format!("l{at}"), Op::Loop { body, until }, json!({})), next)
            }
        };
        self.steps[at as usize] = made;
        at
    }
}

/// Does what there is to do, in any order, until the interpreter says that all is done.
fn work_through(shop: &mut Shop, flow: FlowId, nodes: &[Node], order: &[u8], mut done: BTreeSet<String>) {
    let mut held = BTreeMap::<String, TaskId>::new();
    for choice in order.iter().cycle() {
        while let Some(task) = shop.poll("a", "w") {
            held.insert(task.task.reference.to_string(), task.task.id);
        }
        let mut ready = BTreeSet::new();
        let is_over = interpret(nodes, "", &done, &mut ready);
        assert_eq!(held.keys().cloned().collect::<BTreeSet<_>>(), ready, "after {done:?}");
        if is_over {
            break;
        }
        assert_eq!(shop.status(flow), FlowStatus::Running);
        let name = held.keys().nth(usize::from(*choice) % held.len()).expect("something to do").clone();
        let id = held.remove(&name).expect("it is held");
        assert_eq!(shop.update(id, "w", end(Status::Completed, json!({ "did": name }))), Outcome::Taken);
        done.insert(name);
        if choice % 16 == 0 {
            shop.restart();
        }
    }
    assert_eq!(shop.status(flow), FlowStatus::Completed);
}

fn play(nodes: &[Node], order: &[u8]) {
    let mut shop = Shop::new();
    shop.define_task("a", |_| {});
    let mut builder = Builder { steps: vec![None] };
    let first = builder.way(nodes, None);
    builder.steps[0] = Some(Step { next: first, ..step("start", Op::Noop, json!({})) });
    shop.define(plan("wf", builder.steps.into_iter().flatten().map(Arc::new).collect()));
    let flow = shop.start("wf", json!({}));
    work_through(&mut shop, flow, nodes, order, BTreeSet::new());
    // Once more from any of its tasks: what it took back is not done any more.
    let over = shop.archived(flow);
    let from = &over.tasks[order.iter().map(|choice| usize::from(*choice)).sum::<usize>() % over.tasks.len()];
    let again = Again::Rerun { task: Some(from.id), task_input: None, input: None, correlation: None };
    shop.again(flow, again).unwrap();
    if shop.status(flow) == FlowStatus::Completed {
        return;
    }
    let is_work = |name: &str| name.starts_with('n');
    let kept = shop.view(flow).tasks.into_iter().filter(|task| task.task.status == Status::Completed);
    let done: BTreeSet<_> = kept.map(|task| task.task.reference.to_string()).filter(|name| is_work(name)).collect();
    if is_work(&from.reference) {
        assert_eq!(done, without(nodes, &from.reference), "run again from {}", from.reference);
    }
    work_through(&mut shop, flow, nodes, order, done);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn t5_random_graphs_offer_what_an_interpreter_says_in_any_order_of_answers(
        nodes in nodes(),
        order in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        play(&nodes, &order);
    }
}
