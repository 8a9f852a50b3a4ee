//! T1–T4 against a naive model: random polls, words and time, in any order, with crashes in between.
//!
//! The model knows only who was handed what and when it last spoke. From that follows what may be taken and what may not.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;
use tenure_core::event::EventKind;
use tenure_core::id::TaskId;
use tenure_core::task::Status;
use tenure_core::task::command::{Act, Outcome};

use crate::shop::{GRACE_MS, Shop, end, give_back, line, work};

#[derive(Debug, Clone)]
enum Move {
    Start,
    Poll(u8),
    /// A word about one of the tasks handed out so far, by a worker.
    Say(u8, u8, Word),
    Wait(u64),
    Crash,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    Beat,
    Yield,
    Done,
    Fail,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let word = prop_oneof![3 => Just(Word::Beat), 2 => Just(Word::Yield), 3 => Just(Word::Done), 2 => Just(Word::Fail)];
    let one = prop_oneof![
        2 => Just(Move::Start),
        6 => (0..3u8).prop_map(Move::Poll),
        8 => (any::<u8>(), 0..3u8, word).prop_map(|(task, worker, word)| Move::Say(task, worker, word)),
        5 => prop_oneof![0..3_000u64, Just(4_000), Just(11_000)].prop_map(Move::Wait),
        1 => Just(Move::Crash),
    ];
    prop::collection::vec(one, 1..60)
}

/// What the model knows of a task that was handed out.
#[derive(Debug, Clone, Copy)]
struct Known {
    holder: Option<u8>,
    /// Its lease runs at least and at most until then; a crash can only lengthen it.
    held_until: u64,
    is_over: bool,
}

const TTL_MS: u64 = 3_000 + GRACE_MS;

#[derive(Default)]
struct Model {
    known: HashMap<TaskId, Known>,
    order: Vec<TaskId>,
}

impl Model {
    /// Whether this worker's word counts now.
    fn counts(&self, task: TaskId, worker: u8, now: u64) -> bool {
        let known = self.known[&task];
        !known.is_over && known.holder == Some(worker) && now < known.held_until
    }

    fn pass_time(&mut self, now: u64) {
        for known in self.known.values_mut() {
            if known.holder.is_some() && known.held_until <= now {
                (known.holder, known.is_over) = (None, true);
            }
        }
    }
}

fn play(moves: Vec<Move>) {
    let mut shop = Shop::new();
    shop.define_task("a", |rules| {
        rules.response_s = 3;
        rules.retry.base_delay_ms = 1_000;
    });
    shop.define(line("wf", vec![work("a"), tenure_core::flow::Step { name: "a".into(), ..work("again") }]));
    let mut model = Model::default();
    for one in moves {
        model.pass_time(shop.now);
        match one {
            Move::Start => drop(shop.start("wf", json!({}))),
            Move::Wait(ms) => drop(shop.after(ms)),
            Move::Crash => {
                shop.restart();
                let (now, held) = (shop.now, model.known.values_mut().filter(|known| known.holder.is_some()));
                held.for_each(|known| known.held_until = known.held_until.max(now + TTL_MS));
            }
            Move::Poll(worker) => {
                let Some(task) = shop.poll("a", &format!("w{worker}")) else { continue };
                let known = model.known.get(&task.task.id);
                assert!(known.is_none_or(|known| known.holder.is_none() && !known.is_over), "T1: {known:?}");
                model.order.push(task.task.id);
                let now = Known { holder: Some(worker), held_until: shop.now + TTL_MS, is_over: false };
                model.known.insert(task.task.id, now);
            }
            Move::Say(task, worker, word) => {
                let Some(id) = model.order.get(usize::from(task) % model.order.len().max(1)).copied() else { continue };
                let counts = model.counts(id, worker, shop.now);
                let act = match word {
                    Word::Beat => Act::Beat,
                    Word::Yield => give_back(1),
                    Word::Done => end(Status::Completed, json!({})),
                    Word::Fail => end(Status::Failed, json!({})),
                };
                let outcome = shop.update(id, &format!("w{worker}"), act);
                assert_eq!(outcome, if counts { Outcome::Taken } else { Outcome::Late }, "T2: {word:?} by w{worker}");
                if let Some(known) = model.known.get_mut(&id).filter(|_| counts) {
                    match word {
                        Word::Beat => known.held_until = shop.now + TTL_MS,
                        Word::Yield => known.holder = None,
                        Word::Done | Word::Fail => (known.holder, known.is_over) = (None, true),
                    }
                }
            }
        }
    }
    finish(&mut shop);
}

/// Whatever happened, workers that do their work bring every run to an end, and nothing is left behind.
fn finish(shop: &mut Shop) {
    for _ in 0..200 {
        shop.after(12_000);
        while let Some(task) = shop.poll("a", "last") {
            assert_eq!(shop.done(task.task.id, "last"), Outcome::Taken);
        }
    }
    let count = |kind| shop.of_kind(kind).len();
    assert_eq!(count(EventKind::FlowStarted), count(EventKind::FlowEnded), "no run is stuck");
    let mut ended: Vec<_> =
        shop.of_kind(EventKind::TaskEnded).iter().map(|event| event.resources[0].to_string()).collect();
    let all = ended.len();
    ended.sort();
    ended.dedup();
    assert_eq!(ended.len(), all, "no task ends twice");
    use tenure_core::change::RecordKind::{Flow, Lease, Task};
    assert!(!shop.records.keys().any(|(kind, _)| [Flow, Task, Lease].contains(kind)), "something is left");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn t1_to_t4_hold_for_random_polls_words_times_and_crashes(moves in moves()) {
        play(moves);
    }
}
