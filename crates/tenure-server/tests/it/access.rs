//! Who may do what, with keys and without.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_server::Config;
use tenure_server::config::Access;
use tenure_server::keys::{self, Role};

use crate::harness::{Request, Server, path};

struct Keyed {
    server: Server,
    observer: String,
    agent: String,
    solo: String,
    admin: String,
}

async fn keyed() -> Keyed {
    let make = |name: &str, role, holders: &[&str]| {
        keys::generate(name, role, holders.iter().map(|name| (*name).to_owned()).collect()).expect("a key")
    };
    let made = [
        make("eyes", Role::Observer, &[]),
        make("ci", Role::Agent, &["ci-*"]),
        make("solo", Role::Agent, &["solo"]),
        make("boss", Role::Admin, &["*"]),
    ];
    let file: String = made.iter().map(|(_, entry)| entry.as_str()).collect();
    let access = Access::Keys(Arc::new(keys::parse(&file).expect("keys")));
    let server = Server::with(Config { access, ..Config::default() }).await;
    let [observer, agent, solo, admin] = made.map(|(clear, _)| clear);
    Keyed { server, observer, agent, solo, admin }
}

fn with(key: &str, request: Request) -> Request {
    request.header("authorization", &format!("Bearer {key}"))
}

fn take(holder: &str, resource: &str) -> Request {
    Request::new("POST", "/v1/leases").json(&json!({ "resource": resource, "holder": holder }))
}

#[tokio::test]
async fn what_each_role_may_do() {
    let keyed = keyed().await;
    let server = &keyed.server;
    let lease = server.send(with(&keyed.agent, take("ci-1", "job:1"))).await.json();
    let reason = json!({ "reason": "r" });
    let check = json!({ "resources": ["job:9"] });
    let ping = json!({});
    let ids = json!({ "ids": [lease["id"]] });
    // Observer, agent, admin.
    for (request, allowed) in [
        (Request::new("GET", "/v1/leases"), [true, true, true]),
        (Request::new("GET", &path(&lease, "")), [true, true, true]),
        (Request::new("GET", &path(&lease, "/events")), [true, true, true]),
        (Request::new("GET", "/v1/events"), [true, true, true]),
        (Request::new("GET", "/metrics"), [true, true, true]),
        (Request::new("POST", "/v1/leases/check").json(&check), [true, true, true]),
        (Request::new("POST", "/v1/ping").json(&ping), [true, true, true]),
        (take("ci-2", "job:2"), [false, true, true]),
        (Request::new("POST", &path(&lease, "/renew")).holder("ci-1"), [false, true, true]),
        (Request::new("POST", "/v1/leases/renew").holder("ci-1").json(&ids), [false, true, true]),
        (Request::new("DELETE", &path(&lease, "")).holder("ci-1"), [false, true, true]),
        (Request::new("POST", &path(&lease, "/revoke")).json(&reason), [false, false, true]),
        (Request::new("GET", "/v1/backup"), [false, false, true]),
    ] {
        for (key, is_allowed) in [&keyed.observer, &keyed.agent, &keyed.admin].into_iter().zip(allowed) {
            let answer = server.send(with(key, request.clone())).await;
            assert_eq!(answer.status != 403, is_allowed, "{}", String::from_utf8_lossy(&request.bytes()));
            if !is_allowed {
                answer.problem(403, "forbidden");
            }
        }
        let nobody = server.send(request.clone()).await;
        assert_eq!(nobody.header("www-authenticate"), Some("bearer"));
        nobody.problem(401, "unauthorized");
        server.send(with("tnr_000000000000_00", request)).await.problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn a_key_acts_under_its_own_names_only() {
    let keyed = keyed().await;
    let server = &keyed.server;
    server.send(with(&keyed.agent, take("boss", "job:1"))).await.problem(403, "forbidden");
    server.send(with(&keyed.agent, take("ci-1", "job:1").holder("ci-1"))).await;
    let nameless = Request::new("POST", "/v1/leases").json(&json!({ "resource": "job:2" }));
    server.send(with(&keyed.agent, nameless.clone())).await.problem(400, "bad_request");
    let solo = server.send(with(&keyed.solo, nameless)).await;
    assert_eq!((solo.status, &solo.json()["holder"]), (201, &json!("solo")), "its only name");
    let lease = solo.json();
    server
        .send(with(&keyed.agent, Request::new("DELETE", &path(&lease, "")).holder("solo")))
        .await
        .problem(403, "forbidden");
    let others = server.send(with(&keyed.agent, Request::new("DELETE", &path(&lease, "")).holder("ci-1"))).await;
    assert_eq!(others.problem(409, "not_holder")["holder"], "solo");
    let revoke = Request::new("POST", &path(&lease, "/revoke")).json(&json!({ "reason": "r" }));
    let revoked = server.send(with(&keyed.admin, revoke)).await;
    assert_eq!(revoked.status, 200);
    let story = server.send(with(&keyed.observer, Request::new("GET", &path(&lease, "/events")))).await.json();
    assert_eq!(story["events"][1]["by"], "boss", "the key's name stands for who did it");
}

#[tokio::test]
async fn an_administrator_signs_with_a_name_of_its_key() {
    let made = [("root", &[][..]), ("boss", &["boss-*"])].map(|(name, holders)| {
        keys::generate(name, Role::Admin, holders.iter().map(|name| (*name).to_owned()).collect()).expect("a key")
    });
    let file: String = made.iter().map(|(_, entry)| entry.as_str()).collect();
    let access = Access::Keys(Arc::new(keys::parse(&file).expect("keys")));
    let server = Server::with(Config { access, ..Config::default() }).await;
    let [root, boss] = made.map(|(clear, _)| clear);
    let revoke = |lease: &Value| Request::new("POST", &path(lease, "/revoke")).json(&json!({ "reason": "r" }));
    let lease = server.send(with(&boss, take("boss-1", "job:1"))).await.json();
    for (key, name) in [(&root, "ci-1"), (&root, "boss-1"), (&boss, "root"), (&boss, "ci-1")] {
        server.send(with(key, revoke(&lease).holder(name))).await.problem(403, "forbidden");
    }
    for (key, name, signed) in
        [(&root, None, "root"), (&root, Some("root"), "root"), (&boss, Some("boss-7"), "boss-7"), (&boss, None, "boss")]
    {
        let lease = server.send(with(&boss, take("boss-1", &format!("job:{signed}")))).await.json();
        let request = name.into_iter().fold(revoke(&lease), Request::holder);
        let revoked = server.send(with(key, request)).await;
        assert_eq!((revoked.status, &revoked.json()["ended_by"]), (200, &json!(signed)));
    }
    // What it signs with is also what it may hold under.
    let nameless = |n: u32| Request::new("POST", "/v1/leases").json(&json!({ "resource": format!("own:{n}") }));
    for (n, key, name) in [(1, &root, "root"), (2, &boss, "boss")] {
        let lease = server.send(with(key, nameless(n))).await;
        assert_eq!((lease.status, &lease.json()["holder"]), (201, &json!(name)));
        let release = Request::new("DELETE", &path(&lease.json(), "")).holder(name);
        assert_eq!(server.send(with(key, release)).await.status, 200);
        server.send(with(key, take("somebody", "own:3"))).await.problem(403, "forbidden");
    }
    let backup = server.send(with(&root, Request::new("GET", "/v1/backup").holder("anybody"))).await;
    assert_ne!(backup.status, 403, "a copy is signed by nobody");
}

#[tokio::test]
async fn a_key_may_come_in_either_header_and_in_any_case_of_the_scheme() {
    let keyed = keyed().await;
    for (name, value) in [
        ("authorization", format!("Bearer {}", keyed.observer)),
        ("authorization", format!("bearer  {}", keyed.observer)),
        ("x-api-key", keyed.observer.clone()),
    ] {
        assert_eq!(
            keyed.server.send(Request::new("GET", "/v1/leases").header(name, &value)).await.status,
            200,
            "{name}"
        );
    }
    for (name, value) in
        [("authorization", keyed.observer.clone()), ("authorization", format!("Basic {}", keyed.observer))]
    {
        keyed.server.send(Request::new("GET", "/v1/leases").header(name, &value)).await.problem(401, "unauthorized");
    }
}

#[tokio::test]
async fn what_says_nothing_about_leases_needs_no_key() {
    let keyed = keyed().await;
    for address in ["/healthz", "/readyz", "/version", "/openapi.json"] {
        assert_eq!(keyed.server.get(address).await.status, 200, "{address}");
    }
}

#[tokio::test]
async fn without_keys_any_or_no_key_is_accepted_and_any_name_believed() {
    let server = Server::start().await;
    for request in
        [take("a", "job:1"), with("whatever", take("b", "job:2")), take("c", "job:3").header("x-api-key", "?")]
    {
        assert_eq!(server.send(request).await.status, 201);
    }
}

#[tokio::test]
async fn a_server_without_keys_does_not_listen_where_others_could_come_in() {
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = tenure_server::bind(&[everywhere], &Config::default()).await.expect_err("not safe");
    assert!(refused.to_string().contains("--keys"), "{refused}");
    let insecure = Config { access: Access::Anyone, ..Config::default() };
    assert_eq!(tenure_server::bind(&[everywhere], &insecure).await.expect("asked for").len(), 1);
}

#[tokio::test]
async fn a_client_that_signs_in_gets_its_key_as_its_token_and_works_under_its_own_names() {
    let keyed = keyed().await;
    let server = &keyed.server;
    let sign_in = |secret: &str| json!({ "keyId": "any", "keySecret": secret });
    let answer = server.post("/api/token", sign_in(&keyed.solo)).await;
    assert_eq!((answer.status, &answer.json()["token"]), (200, &json!(keyed.solo)));
    let refused = server.post("/api/token", sign_in("not a key")).await;
    assert_eq!((refused.status, &refused.json()["error"]), (401, &json!("INVALID_TOKEN")));
    let poll = |worker: &str| Request::new("GET", &format!("/api/tasks/poll/batch/a?workerid={worker}&timeout=0"));
    let signed = |request: Request| request.header("x-authorization", &keyed.solo);
    assert_eq!(server.send(signed(poll("solo"))).await.status, 200);
    assert_eq!(server.send(signed(poll("somebody-else"))).await.status, 403, "a worker is one of the key's names");
    assert_eq!(server.send(poll("solo")).await.status, 401, "without a key nobody comes in");
}

#[tokio::test]
async fn a_task_that_a_worker_holds_takes_no_word_from_a_key_without_its_name() {
    let keyed = keyed().await;
    let server = &keyed.server;
    let flow = json!([{ "name": "wf", "tasks": [{ "name": "a", "taskReferenceName": "a" }] }]);
    server.send(with(&keyed.admin, Request::new("PUT", "/api/metadata/workflow").json(&flow))).await;
    server.send(with(&keyed.admin, Request::new("POST", "/api/workflow").json(&json!({ "name": "wf" })))).await;
    let poll = Request::new("GET", "/api/tasks/poll/batch/a?workerid=ci-1&timeout=0");
    let task = server.send(with(&keyed.agent, poll)).await.json()[0].clone();
    let word = |more: serde_json::Value| {
        let mut body = json!({ "taskId": task["taskId"], "workflowInstanceId": "x", "status": "COMPLETED" });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        Request::new("POST", "/api/tasks").json(&body)
    };
    let others = [json!({}), json!({ "token": task["token"] }), json!({ "workerId": "solo", "token": task["token"] })];
    for said in others {
        let answer = server.send(with(&keyed.solo, word(said.clone()))).await;
        assert_eq!(answer.header("tenure-lease"), Some("lost; reason=task_held"), "{said}");
    }
    assert_eq!(server.send(with(&keyed.solo, word(json!({ "workerId": "ci-1" })))).await.status, 403);
    let answer = server.send(with(&keyed.agent, word(json!({ "workerId": "ci-1" })))).await;
    assert_eq!((answer.status, answer.header("tenure-lease")), (200, None));
}
