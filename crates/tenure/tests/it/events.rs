use futures_util::StreamExt;
use serde_json::json;
use tenure::{Error, EventQuery};

use crate::fake::{Fake, Reply};

const EVENTS: &str = "GET /v1/events";

fn stream(text: &str) -> Reply {
    Reply::Raw(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{text}"))
}

fn event(cursor: u64) -> String {
    let data =
        json!({ "cursor": cursor, "at": "2026-11-15T10:00:00.000Z", "kind": "lease.expired", "resources": ["x:a"] });
    format!("id: {cursor}\nevent: lease.expired\ndata: {data}\n\n")
}

#[tokio::test]
async fn a_broken_stream_goes_on_where_it_broke() {
    let fake = Fake::start();
    let cut = event(13).split_at(20).0.to_owned();
    fake.once(EVENTS, stream(&format!(": hello\n\n{}{}{cut}", event(11), event(12))))
        .once(EVENTS, Reply::Close)
        .once(EVENTS, Reply::Json(503, json!({ "code": "unavailable" })))
        .once(EVENTS, stream(&format!("{}{}", event(13), event(14))));
    let mut events = fake.client().watch(EventQuery::default().after(10).kind("lease.expired"));
    for expected in 11..=14 {
        assert_eq!(events.next().await.unwrap().cursor, expected);
    }
    assert_eq!(events.cursor(), Some(14));
    let asked = fake.seen(EVENTS);
    let resumed: Vec<_> = asked.iter().map(|seen| seen.header("last-event-id").unwrap().to_owned()).collect();
    assert_eq!(resumed, ["10", "12", "12", "12"]);
    assert!(asked.iter().all(|seen| seen.header("accept") == Some("text/event-stream")));
    assert!(asked[0].query.contains("kind=lease.expired"), "{}", asked[0].query);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_event_skips_nothing() {
    let fake = Fake::start();
    fake.once(EVENTS, stream("id: 40\n\n")).once(EVENTS, stream(&event(41)));
    let mut events = fake.client().watch(EventQuery::default());
    assert_eq!(events.next().await.unwrap().cursor, 41);
    let asked = fake.seen(EVENTS);
    assert_eq!((asked[0].header("last-event-id"), asked[1].header("last-event-id")), (None, Some("40")));
}

#[tokio::test]
async fn a_quiet_stream_goes_on_from_the_last_place_that_the_server_named() {
    let fake = Fake::start();
    let still_here = |cursor: u64| format!(": still here\nid: {cursor}\n\n");
    fake.once(EVENTS, stream(&format!("{}{}{}", event(11), still_here(300), still_here(482))))
        .once(EVENTS, stream(&format!(": still here\n\n{}", still_here(490))))
        .once(EVENTS, stream(&format!("{}{}", still_here(499), event(500))));
    let mut events = fake.client().watch(EventQuery::default().after(10));
    assert_eq!((events.next().await.unwrap().cursor, events.cursor()), (11, Some(11)));
    assert_eq!((events.next().await.unwrap().cursor, events.cursor()), (500, Some(500)), "no event without data");
    let asked = fake.seen(EVENTS);
    let resumed: Vec<_> = asked.iter().map(|seen| seen.header("last-event-id").unwrap().to_owned()).collect();
    assert_eq!(resumed, ["10", "482", "490"]);
}

#[tokio::test]
async fn a_refused_stream_is_an_error_and_ends_as_a_stream() {
    let fake = Fake::start();
    fake.once(EVENTS, Reply::Json(400, json!({ "code": "bad_request", "detail": "no such kind" })));
    let events: Vec<_> = fake.client().watch(EventQuery::default().kind("x")).into_stream().collect().await;
    assert!(matches!(events.as_slice(), [Err(Error::Refused(_))]), "{events:?}");
}

#[tokio::test]
async fn something_that_is_no_event_is_said_and_not_skipped() {
    let fake = Fake::start();
    fake.once(EVENTS, stream("data: {\"cursor\":\"one\"}\n\n"));
    let error = fake.client().watch(EventQuery::default()).next().await.unwrap_err();
    assert!(matches!(error, Error::BadAnswer { .. }), "{error:?}");
}
