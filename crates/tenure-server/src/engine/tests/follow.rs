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
