use super::super::clock::Clock;
use super::*;

#[tokio::test]
async fn l13_an_outage_expires_nobody_and_a_lost_renewal_is_made_good() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    bench.clock.advance_ms(9_000);
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }));
    // The renewal was answered and never written. The server is away for an hour.
    let bench = bench.crash(3_600_000);
    bench.clock.advance_ms(9_999);
    assert!(
        matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }),
        "it has its whole ttl from the start"
    );
    bench.clock.advance_ms(10_000);
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Lost(_)));
}

#[tokio::test]
async fn l2_tokens_grow_through_restarts() {
    let mut bench = Bench::new();
    let mut last = bench.grant(acquire("a", "job:0")).await.lease.token;
    for n in 1..5 {
        bench = bench.crash(n);
        let token = bench.grant(acquire("a", &format!("job:{n}"))).await.lease.token;
        assert!(token > last && token.epoch() > last.epoch());
        last = token;
    }
}

#[tokio::test]
async fn l2_tokens_grow_though_an_old_backup_was_restored() {
    let bench = Bench::new();
    bench.grant(acquire("a", "job:0")).await;
    let backup = bench.memory.restart();
    let newest = bench.crash(1_000).grant(acquire("a", "job:1")).await.lease.token;
    // Two hours later the backup is put back: it knows nothing of the second start.
    let bench = Bench::on(backup, START.plus_ms(2 * 3_600_000));
    assert!(bench.grant(acquire("a", "job:1")).await.lease.token > newest);
}

#[tokio::test]
async fn ledger_time_goes_on_from_where_it_was_though_the_clock_went_back() {
    let bench = Bench::new();
    bench.clock.advance_ms(60_000);
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    let bench = Bench::on(bench.memory.restart(), START);
    assert_eq!(bench.clock.now(), START, "a minute before the last grant");
    bench.clock.advance_ms(9_999);
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Renewed { .. }));
    assert_eq!(bench.engine.now(), START.plus_ms(69_999));
    bench.clock.advance_ms(10_000);
    assert!(matches!(bench.renew_one("a", token).await, Renewed::Lost(_)), "time does not stand still");
}

#[tokio::test]
async fn the_start_is_durable_before_anyone_is_served() {
    let memory = Memory::new();
    memory.fail_commit(1, tenure_store::Fault::BeforeDurable);
    let opened = Engine::open(Box::new(memory.handle()), Arc::new(ManualClock::at(START)));
    assert!(matches!(opened.err(), Some(super::super::OpenError::Commit(_))));
}
