use super::*;

fn spawn(bench: &Bench, acquire: Acquire) -> tokio::task::JoinHandle<Result<Grant, Refusal>> {
    let engine = bench.engine.clone();
    tokio::spawn(async move { engine.acquire(acquire).await.expect("an answer") })
}

#[tokio::test]
async fn l9_those_in_line_are_served_in_order_and_in_the_batch_of_the_release() {
    let bench = Bench::new();
    let first = bench.grant(acquire("a", "job:1")).await.lease.token;
    let second = spawn(&bench, waiting("b", "job:1", 60_000));
    bench.until_waiting(1).await;
    let third = spawn(&bench, waiting("c", "job:1", 60_000));
    bench.until_waiting(2).await;
    bench.release_one("a", first).await;
    let grant = second.await.unwrap().expect("a grant");
    assert_eq!(bench.counts().await.waiters, 1);
    assert!(!third.is_finished());
    bench.release_one("b", grant.lease.token).await;
    assert_eq!(third.await.unwrap().expect("a grant").lease.holder, holder("c"));
}

#[tokio::test]
async fn l9_a_client_that_went_away_leaves_the_line() {
    let bench = Bench::new();
    let first = bench.grant(acquire("a", "job:1")).await.lease.token;
    let gone = spawn(&bench, waiting("b", "job:1", 60_000));
    bench.until_waiting(1).await;
    let next = spawn(&bench, waiting("c", "job:1", 60_000));
    bench.until_waiting(2).await;
    gone.abort();
    bench.until_waiting(1).await;
    bench.release_one("a", first).await;
    assert_eq!(next.await.unwrap().expect("a grant").lease.holder, holder("c"));
}

#[tokio::test]
async fn l9_nothing_is_granted_to_a_client_that_went_away_in_the_same_moment() {
    let (bench, gate) = gated();
    let first = bench.grant(acquire("a", "job:1")).await.lease.token;
    let gone = spawn(&bench, waiting("b", "job:1", 60_000));
    bench.until_waiting(1).await;
    // While a commit runs the client goes and the lease is released: both are in the next batch.
    gate.shut();
    let busy = spawn(&bench, acquire("x", "job:2"));
    tokio::task::yield_now().await;
    gate.wait_for_knock();
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let engine = bench.engine.clone();
    let released = tokio::spawn(async move { engine.release(release("a", first)).await });
    bench.until_deciding(1).await;
    gate.open();
    busy.await.unwrap().expect("a grant");
    released.await.unwrap().expect("an answer");
    let counts = bench.counts().await;
    assert_eq!((counts.leases, counts.waiters), (1, 0), "only the busy one's lease is left");
}

#[tokio::test]
async fn l7_a_retried_acquire_waits_in_the_same_place_and_both_are_answered() {
    let bench = Bench::new();
    let first = bench.grant(acquire("a", "job:1")).await.lease.token;
    let keyed = || Acquire { key: Some("k".into()), ..waiting("b", "job:1", 60_000) };
    let one = spawn(&bench, keyed());
    bench.until_waiting(1).await;
    let other = spawn(&bench, keyed());
    bench.counts().await;
    assert_eq!(bench.counts().await.waiters, 1, "one place for both");
    bench.release_one("a", first).await;
    let tokens = [one.await.unwrap().unwrap().lease.token, other.await.unwrap().unwrap().lease.token];
    assert_eq!(tokens[0], tokens[1]);
}

#[tokio::test]
async fn l7_a_place_in_line_is_kept_while_one_of_its_clients_is_there() {
    let bench = Bench::new();
    let first = bench.grant(acquire("a", "job:1")).await.lease.token;
    let keyed = || Acquire { key: Some("k".into()), ..waiting("b", "job:1", 60_000) };
    let broken = spawn(&bench, keyed());
    bench.until_waiting(1).await;
    let retried = spawn(&bench, keyed());
    tokio::task::yield_now().await;
    bench.counts().await;
    broken.abort();
    assert!(broken.await.unwrap_err().is_cancelled());
    assert_eq!(bench.counts().await.waiters, 1);
    bench.release_one("a", first).await;
    assert_eq!(retried.await.unwrap().unwrap().lease.holder, holder("b"));
}

#[tokio::test]
async fn l9_a_wait_runs_out_by_the_clock_alone() {
    let bench = Bench::new();
    bench.grant(acquire("a", "job:1")).await;
    let waiting = spawn(&bench, waiting("b", "job:1", 5_000));
    bench.until_waiting(1).await;
    bench.clock.advance_ms(4_999);
    bench.counts().await;
    assert!(!waiting.is_finished());
    bench.clock.advance_ms(1);
    assert!(matches!(waiting.await.unwrap(), Err(Refusal::WaitTimedOut(_))));
}

#[tokio::test]
async fn l4_an_expiry_needs_no_request_to_happen() {
    let bench = Bench::new();
    bench.grant(acquire("a", "job:1")).await;
    let waiting = spawn(&bench, waiting("b", "job:1", 60_000));
    bench.until_waiting(1).await;
    bench.clock.advance_ms(10_000);
    let grant = waiting.await.unwrap().expect("a grant");
    assert_eq!(grant.lease.acquired_at, START.plus_ms(10_000));
}
