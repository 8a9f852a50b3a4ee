use tenure_core::change::Change;
use tenure_store::Fault;

use super::super::{Failure, QUEUE_MAX, RENEWALS_KEPT_MS_MAX, Unavailable};
use super::*;

#[tokio::test]
async fn nobody_is_answered_before_the_commit_and_who_came_meanwhile_shares_the_next() {
    let (bench, gate) = gated();
    gate.shut();
    let ask = |n: u32| {
        let engine = bench.engine.clone();
        tokio::spawn(async move { engine.acquire(acquire("a", &format!("job:{n}"))).await })
    };
    let first = ask(0);
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    let others: Vec<_> = (1..100).map(ask).collect();
    while bench.engine.0.queue.len() < 99 {
        tokio::task::yield_now().await;
    }
    assert!(!first.is_finished(), "its commit has not come back");
    gate.open();
    let mut tokens = vec![first.await.unwrap().unwrap().unwrap().lease.token];
    for other in others {
        tokens.push(other.await.unwrap().unwrap().unwrap().lease.token);
    }
    assert!(tokens.is_sorted(), "answered in the order of arrival");
    let sizes: Vec<_> = gate.passed().iter().map(|batch| batch.events.len()).collect();
    assert_eq!(sizes, [1, 1, 99], "the start, the first, all the others together");
}

#[tokio::test]
async fn a_refusal_that_changes_nothing_does_not_wait_for_the_disk() {
    let (bench, gate) = gated();
    bench.grant(acquire("a", "job:1")).await;
    gate.shut();
    assert!(matches!(bench.refusal(acquire("b", "job:1")).await, Refusal::Held(_)));
    gate.open();
    assert_eq!(gate.passed().len(), 2, "the start and the grant");
}

#[tokio::test]
async fn l13_a_renewal_is_answered_from_memory_and_written_soon_after_the_latest_only() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    for _ in 0..3 {
        bench.clock.advance_ms(100);
        assert!(matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }));
    }
    assert_eq!(gate.passed().len(), 2, "not written yet");
    bench.clock.advance_ms(RENEWALS_KEPT_MS_MAX);
    bench.counts().await;
    // The count above may have been answered before the write; the next one comes after it.
    bench.counts().await;
    let batches = gate.passed();
    let written: Vec<_> = batches.iter().skip(2).flat_map(|batch| &batch.changes).collect();
    let until = START.plus_ms(300 + 10_000);
    assert!(matches!(written.as_slice(), [Change::Renewed(of, at)] if *of == token && *at == until), "{written:?}");
}

#[tokio::test]
async fn l13_renewals_are_written_before_the_engine_stops() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    bench.clock.advance_ms(200);
    bench.renew_one("a", token).await;
    bench.engine.stop();
    bench.engine.finished().await.expect("a clean end");
    let mut until = None;
    let mut restarted = bench.memory.restart();
    restarted
        .load(&mut |record| {
            if let Record::Lease(lease) = record {
                until = Some(lease.expires_at)
            }
        })
        .unwrap();
    assert_eq!(until, Some(START.plus_ms(200 + 10_000)));
}

#[tokio::test]
async fn l13_a_renewal_that_changes_the_ttl_waits_for_the_commit() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    gate.shut();
    let engine = bench.engine.clone();
    let longer = Renew { ttl: Some(ttl(60_000)), ..renew("a", token) };
    let renewal = tokio::spawn(async move { engine.renew(longer).await });
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    assert!(!renewal.is_finished());
    gate.open();
    assert!(matches!(renewal.await.unwrap().unwrap().as_slice(), [Renewed::Renewed { .. }]));
}

#[tokio::test]
async fn a_failed_commit_answers_nobody_and_stops_everything() {
    for fault in [Fault::BeforeDurable, Fault::AfterDurable] {
        let bench = Bench::new();
        let kept = bench.grant(acquire("a", "job:1")).await.lease.token;
        let in_line = {
            let engine = bench.engine.clone();
            tokio::spawn(async move { engine.acquire(waiting("b", "job:1", 60_000)).await })
        };
        bench.until_waiting(1).await;
        bench.memory.fail_commit(1, fault);
        let answer = bench.engine.acquire(acquire("a", "job:2")).await;
        assert!(matches!(answer, Err(Unavailable::Stopped)), "{answer:?}");
        assert!(matches!(in_line.await.unwrap(), Err(Unavailable::Stopped)), "waits are told too");
        let failure = bench.engine.finished().await.expect_err("a failure");
        assert!(matches!(*failure, Failure::Commit(_)), "{failure:?}");
        assert!(!bench.engine.is_running());
        assert!(matches!(bench.engine.apply(Count).await, Err(Unavailable::Stopped)));
        // Recovery decides from what is durable.
        let after = bench.crash(1_000);
        let leases = after.counts().await.leases;
        assert_eq!(leases, if fault == Fault::AfterDurable { 2 } else { 1 });
        assert!(matches!(after.renew_one("a", kept).await, Renewed::Renewed { .. }));
    }
}

#[tokio::test]
async fn a_full_line_says_so_and_takes_up_again() {
    let (bench, gate) = gated();
    gate.shut();
    let engine = bench.engine.clone();
    let first = tokio::spawn(async move { engine.acquire(acquire("a", "job:1")).await });
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    let ask = |_| {
        let engine = bench.engine.clone();
        tokio::spawn(async move { engine.apply(Count).await })
    };
    let asked: Vec<_> = (0..QUEUE_MAX).map(ask).collect();
    while bench.engine.0.queue.len() < QUEUE_MAX {
        tokio::task::yield_now().await;
    }
    assert!(matches!(bench.engine.apply(Count).await, Err(Unavailable::Overloaded)));
    gate.open();
    first.await.unwrap().unwrap().unwrap();
    for question in asked {
        question.await.unwrap().expect("an answer");
    }
    bench.counts().await;
}

#[tokio::test]
async fn the_engine_ends_when_its_last_handle_is_gone() {
    let bench = Bench::new();
    let mut state = bench.engine.0.state.clone();
    drop(bench);
    let ended = tokio::time::timeout(PATIENCE, state.wait_for(|state| !matches!(state, super::super::State::Running)));
    assert!(matches!(ended.await.expect("it ends").as_deref(), Ok(super::super::State::Stopped)));
}
