use serde_json::{Value, json};

use crate::harness::{Request, Server, path};

fn names(page: &Value) -> Vec<&str> {
    page["leases"].as_array().unwrap().iter().map(|lease| lease["resources"][0].as_str().unwrap()).collect()
}

#[tokio::test]
async fn active_leases_are_listed_by_resource_holder_and_kind_page_by_page() {
    let server = Server::start().await;
    for (holder, resource) in
        [("a", "path:src"), ("b", "path:docs/x"), ("a", "job:1"), ("c", "path:src2"), ("a", "job:2")]
    {
        server.acquire(holder, resource).await;
    }
    for (query, expected) in [
        ("", vec!["path:src", "path:docs/x", "job:1", "path:src2", "job:2"]),
        ("?status=active&holder=a", vec!["path:src", "job:1", "job:2"]),
        ("?resource=path:src/deep/file.rs", vec!["path:src"]),
        ("?resource=path:**", vec!["path:src", "path:docs/x", "path:src2"]),
        ("?kind=job", vec!["job:1", "job:2"]),
        ("?kind=job&holder=b", vec![]),
    ] {
        let page = server.get(&format!("/v1/leases{query}")).await.json();
        assert_eq!((names(&page), &page["next"]), (expected, &Value::Null), "{query}");
    }
    server.acquire("d", "path:\u{fffd}").await;
    let page = server.get("/v1/leases?resource=path:%EF%BF%BD&holder=d").await.json();
    assert_eq!(names(&page), ["path:\u{fffd}"], "a character like any other");
    let mut seen = Vec::new();
    let mut next = Value::Null;
    loop {
        let after = next.as_str().map(|next| format!("&after={next}")).unwrap_or_default();
        let page = server.get(&format!("/v1/leases?limit=2{after}")).await.json();
        seen.extend(names(&page).iter().map(|name| (*name).to_owned()));
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(seen, ["path:src", "path:docs/x", "job:1", "path:src2", "job:2", "path:\u{fffd}"]);
}

#[tokio::test]
async fn ended_leases_are_listed_from_the_history_latest_first() {
    let server = Server::start().await;
    for n in 0..5 {
        let lease = server.acquire("a", &format!("job:{n}")).await;
        server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    }
    let expiring = server.acquire("b", "path:x").await;
    server.clock.advance_ms(10_000);
    let released = server.get("/v1/leases?status=released&limit=3").await.json();
    assert_eq!(names(&released), ["job:4", "job:3", "job:2"]);
    assert_eq!(released["leases"][0]["status"], "released");
    let rest =
        server.get(&format!("/v1/leases?status=released&after={}", released["next"].as_str().unwrap())).await.json();
    assert_eq!((names(&rest), &rest["next"]), (vec!["job:1", "job:0"], &Value::Null));
    let expired = server.get("/v1/leases?status=expired&kind=path").await.json();
    assert_eq!(expired["leases"][0]["id"], expiring["id"]);
    assert_eq!(names(&server.get("/v1/leases?status=expired&kind=job").await.json()), Vec::<&str>::new());
    assert_eq!(names(&server.get("/v1/leases?status=revoked").await.json()), Vec::<&str>::new());
}

#[tokio::test]
async fn the_events_of_a_lease_tell_its_story() {
    let server = Server::start().await;
    let lease = server.acquire("a", "job:1").await;
    server.acquire("b", "job:2").await;
    server.send(Request::new("POST", &path(&lease, "/renew")).holder("a").json(&json!({ "ttl_seconds": 60 }))).await;
    server.send(Request::new("DELETE", &path(&lease, "")).holder("a")).await;
    let story = server.get(&path(&lease, "/events")).await.json();
    let kinds: Vec<_> =
        story["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["lease.granted", "lease.renewed", "lease.released"]);
    assert_eq!((&story["events"][2]["lease_id"], &story["next"]), (&lease["id"], &Value::Null));
}
