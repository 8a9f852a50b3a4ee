use tenure_core::event::Cursor;

use super::super::{Follower, Lagging};
use super::*;

async fn cursors(follower: &mut Follower, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let unseen = tokio::time::timeout(PATIENCE, follower.next()).await.expect("events").expect("no gap");
        seen.extend(unseen.iter().map(|published| published.event().cursor.0));
    }
    seen
}

#[tokio::test]
async fn a_follower_sees_every_event_once_from_the_store_and_then_from_memory() {
    let bench = Bench::new();
    for n in 0..10 {
        bench.grant(acquire("a", &format!("job:{n}"))).await;
    }
    // After a restart the ring is empty, so what came before is in the store only.
    let bench = bench.crash(1);
    for n in 10..20 {
        bench.grant(acquire("a", &format!("job:{n}"))).await;
    }
    let mut follower = bench.engine.follow(Cursor(3)).await.expect("kept");
    assert_eq!(cursors(&mut follower, 19).await, (4..=22).collect::<Vec<_>>(), "2 starts and 20 grants");
}

#[tokio::test]
async fn a_follower_that_is_up_to_date_is_woken_by_the_next_event() {
    let bench = Bench::new();
    let last = bench.engine.last_event();
    let mut follower = bench.engine.follow(last).await.expect("kept");
    let news = tokio::spawn(async move { cursors(&mut follower, 1).await });
    tokio::task::yield_now().await;
    bench.grant(acquire("a", "job:1")).await;
    assert_eq!(news.await.unwrap(), [last.0 + 1]);
}

#[tokio::test]
async fn a_cursor_from_the_future_is_told_so() {
    let bench = Bench::new();
    let last = bench.engine.last_event();
    let gone = bench.engine.follow(Cursor(last.0 + 7)).await.err();
    assert!(matches!(gone, Some(Lagging::Gone { asked, first: Cursor(1), .. }) if asked.0 == last.0 + 7), "{gone:?}");
}

/// A ledger with events 1 to 3 and, since its next start, 1,001: a batch in between has moved the cursor and told nothing.
async fn with_a_gap() -> Bench {
    let bench = Bench::new();
    bench.grant(acquire("a", "job:1")).await;
    bench.grant(acquire("a", "job:2")).await;
    let memory = bench.memory.restart();
    let mut store = memory.handle();
    let epoch = store.claim(Epoch(1)).expect("an epoch");
    let head = store.reader().stats().head;
    let head = Head { seq: head.seq + 1, epoch, cursor: Cursor(1_000), ..head };
    store.commit(&Arc::new(Batch { head, ..Batch::default() })).expect("commits");
    Bench::on(memory, START.plus_ms(1))
}

#[tokio::test]
async fn a_follower_goes_on_over_a_gap_in_the_numbers() {
    let bench = with_a_gap().await;
    bench.grant(acquire("a", "job:3")).await;
    for (after, expected) in [(1, vec![2, 3, 1_001, 1_002]), (3, vec![1_001, 1_002])] {
        let mut follower = bench.engine.follow(Cursor(after)).await.expect("kept");
        assert_eq!(cursors(&mut follower, expected.len()).await, expected, "after {after}");
    }
}

#[tokio::test]
async fn a_cursor_at_which_nothing_happened_is_told_so() {
    let bench = with_a_gap().await;
    let gone = bench.engine.follow(Cursor(500)).await.err();
    let Some(Lagging::Gone { asked, first, last }) = gone else { panic!("{gone:?}") };
    assert_eq!((asked, first, last), (Cursor(500), Cursor(1), Cursor(1_001)));
}
