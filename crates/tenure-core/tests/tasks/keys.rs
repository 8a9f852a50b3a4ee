//! Idempotency keys of runs: while they go on, after their end, over restarts, and when they are brought back.

use tenure_core::change::RecordKind;
use tenure_core::flow::command::{Again, FlowRefusal, OnKeyUsed, RemoveArchived, StartFlow, Steer, Which};
use tenure_core::id::FlowId;
use tenure_core::limits::{FLOW_KEY_BYTES_MAX, IDEMPOTENCY_KEEP_MS};
use tenure_core::task::empty_object;

use crate::shop::{Shop, line, work};

fn shop() -> Shop {
    let mut shop = Shop::new();
    shop.define_task("a", |rules| rules.retry.max_attempts = 1);
    shop.define(line("wf", vec![work("a")]));
    shop
}

fn start(shop: &mut Shop, key: &str, on_key_used: OnKeyUsed) -> Result<FlowId, FlowRefusal> {
    let start = StartFlow::new(Which::Named("wf".into(), None), empty_object());
    shop.apply(StartFlow { key: Some(key.into()), on_key_used, ..start })
}

/// The run that a start with this key is answered with.
fn keyed(shop: &mut Shop, key: &str) -> FlowId {
    start(shop, key, OnKeyUsed::Return).unwrap()
}

fn finish(shop: &mut Shop, flow: FlowId) {
    let task = shop.poll("a", "w").expect("its task");
    assert_eq!(task.task.flow, flow);
    shop.done(task.task.id, "w");
}

fn kept(shop: &Shop) -> usize {
    shop.records.keys().filter(|(kind, _)| *kind == RecordKind::FlowKey).count()
}

#[test]
fn a_key_answers_with_its_run_after_the_end_and_over_restarts_until_its_time_is_over() {
    let mut shop = shop();
    let first = keyed(&mut shop, "k");
    shop.restart();
    assert_eq!(keyed(&mut shop, "k"), first);
    finish(&mut shop, first);
    let ended = shop.now;
    shop.restart();
    shop.after(IDEMPOTENCY_KEEP_MS - 1);
    shop.restart();
    assert_eq!(keyed(&mut shop, "k"), first, "a retry that comes late starts nothing");
    assert_eq!(start(&mut shop, "k", OnKeyUsed::Refuse), Err(FlowRefusal::KeyUsed(first)));
    shop.after(ended + IDEMPOTENCY_KEEP_MS - shop.now);
    shop.restart();
    assert_ne!(keyed(&mut shop, "k"), first, "it is not remembered for ever");
    assert_eq!(kept(&shop), 0, "nor stored");
}

#[test]
fn the_key_of_a_run_that_is_brought_back_is_its_own_while_it_goes_on_and_from_its_new_end() {
    let rerun = |task| Again::Rerun { task, task_input: None, input: None, correlation: None };
    for how in ["retry", "restart", "rerun", "rerun from a task"] {
        let mut shop = shop();
        let flow = keyed(&mut shop, "k");
        let task = shop.poll("a", "w").unwrap();
        shop.fail(task.task.id, "w");
        shop.after(IDEMPOTENCY_KEEP_MS - 1_000);
        let again = match how {
            "retry" => Again::Retry,
            "restart" => Again::Restart { latest: false },
            "rerun" => rerun(None),
            _ => rerun(Some(task.task.id)),
        };
        shop.again(flow, again).unwrap();
        assert_eq!(kept(&shop), 0, "{how}: it goes on");
        shop.restart();
        shop.after(2 * IDEMPOTENCY_KEEP_MS);
        assert_eq!(keyed(&mut shop, "k"), flow, "{how}");
        assert_eq!(start(&mut shop, "k", OnKeyUsed::RefuseWhileRunning), Err(FlowRefusal::KeyUsed(flow)), "{how}");
        finish(&mut shop, flow);
        shop.after(IDEMPOTENCY_KEEP_MS - 1);
        shop.restart();
        assert_eq!(keyed(&mut shop, "k"), flow, "{how}: from its new end");
        shop.after(1);
        assert_ne!(keyed(&mut shop, "k"), flow, "{how}");
    }
}

#[test]
fn of_two_runs_with_one_key_the_later_start_has_it() {
    let mut shop = shop();
    let first = keyed(&mut shop, "k");
    finish(&mut shop, first);
    let second = start(&mut shop, "k", OnKeyUsed::RefuseWhileRunning).unwrap();
    assert_ne!(second, first);
    assert_eq!(kept(&shop), 0, "the first one's is not needed any more");
    shop.restart();
    assert_eq!(keyed(&mut shop, "k"), second);
    // Brought back, the first one takes it; the end of the second one does not take it away again.
    shop.again(first, Again::Restart { latest: false }).unwrap();
    assert_eq!(keyed(&mut shop, "k"), first);
    finish(&mut shop, second);
    assert_eq!((keyed(&mut shop, "k"), kept(&shop)), (first, 0));
    finish(&mut shop, first);
    shop.restart();
    assert_eq!((keyed(&mut shop, "k"), kept(&shop)), (first, 1));
}

#[test]
fn the_key_of_a_run_that_is_removed_is_free_and_a_key_has_its_bound() {
    let mut shop = shop();
    let first = keyed(&mut shop, "k");
    finish(&mut shop, first);
    shop.apply(RemoveArchived(first));
    let second = keyed(&mut shop, "k");
    assert_ne!(second, first);
    shop.control(second, Steer::Remove).unwrap();
    let third = keyed(&mut shop, "k");
    assert!(third != second && kept(&shop) == 0);
    let refused = start(&mut shop, &"k".repeat(FLOW_KEY_BYTES_MAX + 1), OnKeyUsed::Return);
    assert!(matches!(refused, Err(FlowRefusal::Limit { max: FLOW_KEY_BYTES_MAX, .. })));
    keyed(&mut shop, &"k".repeat(FLOW_KEY_BYTES_MAX));
}
