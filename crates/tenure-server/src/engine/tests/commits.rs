use tenure_core::change::Change;
use tenure_core::command::Command;
use tenure_core::{Ledger, Turn};
use tenure_store::{Error, Fault, Options, Sqlite};

use super::super::desk::LONE_BATCHES;
use super::super::{Failure, Found, RENEWALS_KEPT_MS_MAX, Unavailable, WAITING_MAX};
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
    bench.until_deciding(99).await;
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
async fn l12_a_lease_ended_when_the_ledger_ended_it_however_long_the_commit_takes() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    gate.shut();
    let engine = bench.engine.clone();
    let released = tokio::spawn(async move { engine.release(release("a", token)).await });
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    bench.clock.advance_ms(250);
    gate.open();
    let Ok(Released::Ended(_, at)) = released.await.unwrap() else { panic!("it was held") };
    let Ok(Found::Ended(ended)) = bench.engine.find(token).await else { panic!("it is over") };
    assert_eq!((at, ended.0.at), (START, START));
}

#[tokio::test]
async fn the_answer_to_an_acquire_has_the_time_at_which_it_leaves() {
    let (bench, gate) = gated();
    let (_close, closing) = tokio::sync::watch::channel(false);
    let parts = crate::http::Parts { engine: bench.engine.clone(), config: crate::Config::default(), closing };
    let router = crate::router::router(crate::http::App(Arc::new(parts)));
    let body = r#"{"resource":"job:1","holder":"a","ttl_seconds":1}"#;
    let request = axum::http::Request::post("/v1/leases").header("content-type", "application/json");
    let request = request.body(axum::body::Body::from(body)).unwrap();
    gate.shut();
    let answer = tokio::spawn(tower::ServiceExt::oneshot(router, request));
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    bench.clock.advance_ms(3_000);
    gate.open();
    let body = axum::body::to_bytes(answer.await.unwrap().unwrap().into_body(), 4_096).await.unwrap();
    let lease: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let at = |ms| crate::http::reply::At(START.plus_ms(ms)).to_string();
    assert_eq!((&lease["expires_at"], &lease["server_time"]), (&at(1_000).into(), &at(3_000).into()), "{lease}");
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
    gate.wait_for(3);
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

/// A grant whose lease is known, and a commit that stands at the gate until it is opened.
async fn while_committing(bench: &Bench, gate: &Gate) -> tokio::task::JoinHandle<()> {
    gate.shut();
    let engine = bench.engine.clone();
    let busy = tokio::spawn(async move { drop(engine.acquire(acquire("x", "job:busy")).await) });
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    busy
}

#[tokio::test]
async fn l13_a_renewal_does_not_wait_for_the_commits_of_others() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    let busy = while_committing(&bench, &gate).await;
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }));
    assert!(!busy.is_finished());
    gate.open();
    busy.await.unwrap();
}

#[tokio::test]
async fn l13_a_renewal_waits_for_what_it_rests_on() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    let busy = while_committing(&bench, &gate).await;
    let longer = Renew { ttl: Some(ttl(60_000)), ..renew("a", token) };
    let of_busy = Token::from_u64(token.as_u64() + 1);
    let mut asked = Vec::new();
    for renew in [longer, renew("a", token), renew("b", token), renew("x", of_busy)] {
        let engine = bench.engine.clone();
        asked.push(tokio::spawn(async move { engine.renew(renew).await }));
    }
    bench.until_deciding(4).await;
    let is_told = asked.iter().any(|renewal| renewal.is_finished());
    assert!(!is_told, "the ttl it would promise, the refusal or the lease itself is not on the disk");
    gate.open();
    for renewal in asked {
        renewal.await.unwrap().expect("an answer");
    }
    busy.await.unwrap();
}

#[tokio::test]
async fn l13_a_renewal_does_not_wait_for_a_new_ttl_of_another_lease() {
    let (bench, gate) = gated();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    let other = bench.grant(acquire("b", "job:2")).await.lease.token;
    let busy = while_committing(&bench, &gate).await;
    let engine = bench.engine.clone();
    let longer = Renew { ttl: Some(ttl(60_000)), ..renew("b", other) };
    let altered = tokio::spawn(async move { engine.renew(longer).await });
    bench.until_deciding(1).await;
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }));
    assert!(!altered.is_finished());
    gate.open();
    altered.await.unwrap().expect("an answer");
    busy.await.unwrap();
}

#[tokio::test]
async fn a_read_waits_for_what_it_has_seen() {
    let (bench, gate) = gated();
    bench.counts().await;
    let busy = while_committing(&bench, &gate).await;
    let engine = bench.engine.clone();
    let read = tokio::spawn(async move { engine.apply(Count).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!read.is_finished(), "it has seen a lease that the disk does not have");
    gate.open();
    assert_eq!(read.await.unwrap().expect("an answer").leases, 1);
    busy.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_alone_writes_itself_and_many_are_written_by_the_thread() {
    let (bench, gate) = gated();
    let engine = bench.engine.clone();
    let alone = tokio::spawn(async move {
        // The thread may not have gone to sleep yet.
        for n in 0.. {
            drop(engine.acquire(acquire("a", &format!("job:{n}"))).await.unwrap().unwrap());
            if !gate.state.lock().unwrap().is_by_thread {
                return gate;
            }
        }
        gate
    });
    let gate = tokio::time::timeout(PATIENCE, alone).await.expect("it comes to that").unwrap();
    let busy = while_committing(&bench, &gate).await;
    let ask = |n: u32| {
        let engine = bench.engine.clone();
        tokio::spawn(async move { engine.acquire(acquire("b", &format!("work:{n}"))).await })
    };
    let others: Vec<_> = (0..10).map(ask).collect();
    bench.until_deciding(10).await;
    gate.open();
    for other in others {
        other.await.unwrap().unwrap().unwrap();
    }
    assert!(gate.state.lock().unwrap().is_by_thread);
    busy.await.unwrap();
    // Where there were many, a few that come alone say nothing.
    for n in 0..LONE_BATCHES {
        bench.until_asleep().await;
        ask(100 + n).await.unwrap().unwrap().unwrap();
        assert!(gate.state.lock().unwrap().is_by_thread, "{n} after the crowd");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_under_a_request_stops_everything_too() {
    let bench = Bench::new();
    bench.memory.fail_commit(1, Fault::BeforeDurable);
    let engine = bench.engine.clone();
    let answer = tokio::spawn(async move { engine.acquire(acquire("a", "job:1")).await }).await.unwrap();
    assert!(matches!(answer, Err(Unavailable::Stopped)), "{answer:?}");
    let failure = bench.engine.finished().await.expect_err("a failure");
    assert!(matches!(*failure, Failure::Commit(_)), "{failure:?}");
    assert!(matches!(bench.engine.apply(Count).await, Err(Unavailable::Stopped)));
}

struct Blunder;

impl Command for Blunder {
    type Reply = ();

    fn decide(self, _: &mut Ledger, _: &mut Turn<'_>) {
        panic!("on purpose");
    }
}

#[tokio::test]
async fn a_decision_that_panics_stops_everything() {
    let bench = Bench::new();
    let engine = bench.engine.clone();
    assert!(tokio::spawn(async move { engine.apply(Blunder).await }).await.is_err());
    let failure = bench.engine.finished().await.expect_err("a failure");
    assert!(matches!(*failure, Failure::Panic), "{failure:?}");
    assert!(matches!(bench.engine.apply(Count).await, Err(Unavailable::Stopped)));
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
async fn a_full_batch_says_so_and_the_next_takes_up_again() {
    let (bench, gate) = gated();
    gate.shut();
    let engine = bench.engine.clone();
    let first = tokio::spawn(async move { engine.acquire(acquire("a", "job:1")).await });
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    let ask = |n| {
        let engine = bench.engine.clone();
        tokio::spawn(async move { engine.acquire(acquire("b", &format!("work:{n}"))).await })
    };
    let asked: Vec<_> = (0..WAITING_MAX).map(ask).collect();
    bench.until_deciding(WAITING_MAX).await;
    assert!(matches!(bench.engine.apply(Count).await, Err(Unavailable::Overloaded)));
    gate.open();
    first.await.unwrap().unwrap().unwrap();
    for question in asked {
        question.await.unwrap().expect("an answer").expect("a grant");
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

/// An engine whose files were removed under it.
fn without_files() -> Engine {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Sqlite::open(dir.path(), Options::default()).expect("a store");
    let engine = Engine::open(Box::new(store), Arc::new(ManualClock::at(START))).expect("an engine");
    dir.close().expect("removed");
    engine
}

async fn says_removed(engine: &Engine) {
    let end = tokio::time::timeout(PATIENCE, engine.finished()).await.expect("it ends").expect_err("no orderly end");
    let Failure::Commit(CommitError::Failed(Error::Removed { .. })) = &*end else { panic!("{end}") };
}

#[tokio::test]
async fn a_data_directory_that_was_removed_ends_the_engine() {
    let engine = without_files();
    let asking = async {
        // The store looks for its files four times a second.
        let mut number = 0;
        while engine.acquire(acquire("a", &format!("job:{number}"))).await.is_ok() {
            number += 1;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("grants end");
    says_removed(&engine).await;
}

#[tokio::test]
async fn an_end_after_the_data_directory_was_removed_is_no_orderly_one() {
    let engine = without_files();
    engine.stop();
    says_removed(&engine).await;
}
