use tenure_core::command::Revoke;
use tenure_core::event::EventKind;

use super::super::{Found, Lost};
use super::*;

fn lost(renewed: Renewed) -> Lost {
    match renewed {
        Renewed::Lost(lost) => *lost,
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test]
async fn l5_a_lost_lease_tells_how_it_ended_and_who_has_it_now() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "path:src")).await.lease.token;
    bench.clock.advance_ms(10_000);
    let free = lost(bench.renew_one("a", token).await);
    assert_eq!(free.ended.0.kind, EventKind::LeaseExpired);
    assert!(free.current.is_none(), "nobody has it");
    bench.grant(acquire("b", "path:src/a.rs")).await;
    let taken = lost(bench.renew_one("a", token).await);
    assert_eq!(taken.current.expect("somebody").blocker.holder(), &holder("b"));
}

#[tokio::test]
async fn l10_a_revoked_lease_tells_its_holder_why() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    let revoke = Revoke { token, by: holder("root"), reason: "deploy".into() };
    assert!(matches!(bench.engine.revoke(revoke.clone()).await, Ok(Released::Ended(..))));
    let ended = lost(bench.renew_one("a", token).await).ended.0;
    assert_eq!((ended.kind, ended.reason.as_deref()), (EventKind::LeaseRevoked, Some("deploy")));
    assert!(matches!(bench.engine.revoke(revoke).await, Ok(Released::Before(_))));
}

#[tokio::test]
async fn l6_a_release_can_be_repeated_by_its_holder_and_by_nobody_else() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    assert!(matches!(bench.release_one("b", token).await, Released::NotHolder(whose) if whose == holder("a")));
    assert!(matches!(bench.release_one("a", token).await, Released::Ended(..)));
    assert!(matches!(bench.release_one("a", token).await, Released::Before(_)));
    assert!(matches!(bench.release_one("b", token).await, Released::NotHolder(whose) if whose == holder("a")));
    assert!(matches!(bench.renew_one("b", token).await, Renewed::NotHolder(whose) if whose == holder("a")));
    let never = Token::from_u64(token.as_u64() + 1);
    assert!(matches!(bench.release_one("a", never).await, Released::Unknown));
    assert!(matches!(bench.renew_one("a", never).await, Renewed::Unknown));
}

#[tokio::test]
async fn many_renewals_are_answered_one_by_one_in_the_order_asked() {
    let bench = Bench::new();
    let alive = bench.grant(acquire("a", "job:1")).await.lease.token;
    let over = bench.grant(acquire("a", "job:2")).await.lease.token;
    let others = bench.grant(acquire("b", "job:3")).await.lease.token;
    bench.release_one("a", over).await;
    let never = Token::from_u64(others.as_u64() + 1);
    let renew = Renew { tokens: vec![over, alive, never, others, over], holder: holder("a"), ttl: None };
    let renewed = bench.engine.renew(renew).await.unwrap();
    let [Renewed::Lost(_), Renewed::Renewed { .. }, Renewed::Unknown, Renewed::NotHolder(whose), Renewed::Lost(_)] =
        renewed.as_slice()
    else {
        panic!("{renewed:?}")
    };
    assert_eq!(whose, &holder("b"));
}

#[tokio::test]
async fn a_lease_is_found_active_over_or_not_at_all() {
    let bench = Bench::new();
    let token = bench.grant(acquire("a", "job:1")).await.lease.token;
    assert!(matches!(bench.engine.find(token).await, Ok(Found::Active(_))));
    bench.release_one("a", token).await;
    assert!(matches!(bench.engine.find(token).await, Ok(Found::Ended(_))));
    let bench = bench.crash(0);
    assert!(matches!(bench.engine.find(token).await, Ok(Found::Ended(_))), "also after a restart");
    assert!(matches!(bench.engine.find(Token::from_u64(1)).await, Ok(Found::Unknown)));
}
