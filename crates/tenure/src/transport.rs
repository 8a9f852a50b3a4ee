//! Owns one HTTP exchange with the server: headers, limits, and turning every kind of answer into a type.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_core::{LeaseId, Ttl};

use crate::beat::Renew;
use crate::beat::schedule::{Answer, Batch};
use crate::error::{Error, Problem};
use crate::guard::Loss;
use crate::model::Ended;

/// A connection that is not made by then will not be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer larger than this is not Tenure's.
const ANSWER_BYTES_MAX: usize = 64 << 20;

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Where the server is and who asks. Cheap to clone; makes transports.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: Url,
    pub(crate) holder: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) ca_pem: Option<Vec<u8>>,
}

/// A request, before it is sent.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: Cow<'static, str>,
    pub(crate) query: Option<Value>,
    pub(crate) raw_query: Option<String>,
    /// JSON, written once: another try sends the same bytes.
    pub(crate) body: Option<Bytes>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeout: Duration,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<Cow<'static, str>>, timeout: Duration) -> Call {
        Call { method, path: path.into(), query: None, raw_query: None, body: None, headers: Vec::new(), timeout }
    }

    pub(crate) fn query(mut self, query: &impl Serialize) -> Call {
        self.query = serde_json::to_value(query).ok();
        self
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Call {
        self.body = written(body);
        self
    }
}

/// As JSON. Strings, numbers and JSON always become JSON.
pub(crate) fn written(body: &impl Serialize) -> Option<Bytes> {
    serde_json::to_vec(body).ok().map(Bytes::from)
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    /// What the server says beside the answer about the lease that the call relied on.
    pub(crate) lease: Option<String>,
    pub(crate) body: Bytes,
}

/// A pool of connections to one server. They belong to the runtime that first used them.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    http: reqwest::Client,
    base: Url,
}

impl Transport {
    pub(crate) fn new(address: &Address) -> Result<Transport, Error> {
        Transport::with(address, |http| http)
    }

    /// Connections for the heartbeat. One that died without a word must not take the next request, too: one connection
    /// carries one request, and at most one waits for the next beat.
    pub(crate) fn for_heartbeat(address: &Address) -> Result<Transport, Error> {
        Transport::with(address, |http| http.http1_only().pool_max_idle_per_host(1))
    }

    fn with(
        address: &Address,
        tune: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
    ) -> Result<Transport, Error> {
        // Whoever embeds this crate may have chosen a provider already; then that one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .default_headers(address.headers()?);
        if address.is_loopback() {
            http = http.no_proxy();
        }
        if address.url.scheme() == "http" {
            // Reading the machine's certificates costs more than a request.
            http = http.tls_certs_only([]);
        }
        if let Some(pem) = &address.ca_pem {
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| setup("the CA file is not PEM", error))?;
            http = http.tls_certs_merge(certificates);
        }
        let http = tune(http).build().map_err(|error| setup("the HTTP client cannot be set up", error))?;
        Ok(Transport { http, base: address.url.clone() })
    }

    /// Sends it once and reads the answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.read(&self.send(call).await?)
    }

    /// Sends it once; an answer that is no refusal.
    pub(crate) async fn send(&self, call: &Call) -> Result<Bytes, Error> {
        let request = self.request(call).timeout(call.timeout);
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let response = self.accepted(response).await?;
        self.bytes(response).await
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(answer).map_err(|error| Error::BadAnswer {
            url: self.base.to_string(),
            what: "not the expected JSON".to_owned(),
            source: Some(error.into()),
        })
    }

    /// Sends it once; the answer, whatever it says.
    pub(crate) async fn exchange(&self, call: &Call) -> Result<Exchange, Error> {
        let request = self.request(call).timeout(call.timeout);
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status().as_u16();
        let lease = response.headers().get("tenure-lease").and_then(|lease| lease.to_str().ok()).map(str::to_owned);
        Ok(Exchange { status, lease, body: self.bytes(response).await? })
    }

    /// Opens a stream of server-sent events; the answer's body has no time limit.
    pub(crate) async fn stream(&self, call: &Call, last_event_id: Option<u64>) -> Result<Response, Error> {
        let mut request = self.request(call).header("Accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        self.head(request, call.timeout).await
    }

    /// Asks for a body that is read piece by piece and has no time limit.
    pub(crate) async fn open(&self, call: &Call) -> Result<Response, Error> {
        self.head(self.request(call), call.timeout).await
    }

    async fn head(&self, request: reqwest::RequestBuilder, timeout: Duration) -> Result<Response, Error> {
        let answer = tokio::time::timeout(timeout, request.send()).await;
        let response = answer.map_err(|late| self.unreachable(late))?.map_err(|error| self.unreachable(error))?;
        self.accepted(response).await
    }

    fn request(&self, call: &Call) -> reqwest::RequestBuilder {
        let mut url = self.base.clone();
        match self.base.path().trim_end_matches('/') {
            "" => url.set_path(&call.path),
            below => url.set_path(&format!("{below}{}", call.path)),
        }
        if let Some(Value::Object(members)) = &call.query {
            let pairs = members
                .iter()
                .map(|(name, value)| (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        if call.raw_query.is_some() {
            url.set_query(call.raw_query.as_deref());
        }
        let mut request = self.http.request(call.method.clone(), url);
        if let Some(body) = &call.body {
            request = request.header(CONTENT_TYPE, JSON).body(body.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        request
    }

    /// The response if it is a success; otherwise what the server says went wrong.
    async fn accepted(&self, response: Response) -> Result<Response, Error> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after_ms(response.headers());
        let bytes = self.bytes(response).await.unwrap_or_default();
        let Ok(mut problem) = serde_json::from_slice::<Problem>(&bytes) else {
            let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
            let what = format!("status {}: {text}", status.as_u16());
            return Err(Error::BadAnswer { url: self.base.to_string(), what, source: None });
        };
        problem.status = status.as_u16();
        if let Some(ms) = retry_after {
            problem.more.entry("retry_after_ms").or_insert_with(|| ms.into());
        }
        Err(problem.into())
    }

    async fn bytes(&self, mut response: Response) -> Result<Bytes, Error> {
        let first = self.chunk(&mut response).await?.unwrap_or_default();
        // Most answers come in one piece and are not copied.
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&chunk);
            if whole.len() > ANSWER_BYTES_MAX {
                let what = format!("more than {ANSWER_BYTES_MAX} bytes");
                return Err(Error::BadAnswer { url: self.base.to_string(), what, source: None });
            }
        }
        Ok(if whole.is_empty() { first } else { whole.into() })
    }

    async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Error> {
        response.chunk().await.map_err(|error| self.unreachable(error))
    }

    pub(crate) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unreachable { url: self.base.to_string(), source: source.into() }
    }
}

impl Address {
    fn headers(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        if let Some(holder) = &self.holder {
            headers.insert(HeaderName::from_static("x-tenure-holder"), header("the holder's name", holder)?);
        }
        if let Some(key) = &self.api_key {
            let mut value = HeaderValue::from_str(key).map_err(|error| setup("the API key cannot be sent", error))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-api-key"), value);
        }
        Ok(headers)
    }

    /// Requests to this machine never go through a proxy.
    fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        f.debug_struct("Address").field("url", &self.url.as_str()).field("holder", &self.holder).finish_non_exhaustive()
    }
}

fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get("retry-after")?.to_str().ok()?.parse().ok()?;
    Some(seconds.saturating_mul(1_000))
}

/// A text as the value of a header.
pub(crate) fn header(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|error| setup(&format!("{what} cannot be sent"), error))
}

pub(crate) fn setup(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Setup { what: what.to_owned(), source: Some(source.into()) }
}

#[derive(serde::Deserialize)]
struct Outcomes {
    results: Vec<Outcome>,
}

#[derive(serde::Deserialize)]
struct Outcome {
    id: LeaseId,
    outcome: String,
    #[serde(default)]
    ttl_ms: u64,
    #[serde(flatten)]
    ended: Ended,
}

impl Outcome {
    /// Nothing for an outcome this version does not know: then no answer came.
    fn answer(self) -> Option<(LeaseId, Answer)> {
        let answer = match self.outcome.as_str() {
            "renewed" => Answer::Renewed(Ttl::from_ms_native(self.ttl_ms).ok()?),
            "lost" => Answer::Lost(Loss::Ended(Box::new(self.ended))),
            "not_holder" | "unknown" => Answer::Lost(Loss::Disowned),
            _ => return None,
        };
        Some((self.id, answer))
    }
}

impl Renew for Transport {
    async fn renew(&self, batch: &Batch) -> Result<Vec<(LeaseId, Answer)>, Error> {
        #[derive(Serialize)]
        struct Ids<'a> {
            ids: &'a [LeaseId],
        }
        let call = Call::new(Method::POST, "/v1/leases/renew", batch.timeout).body(&Ids { ids: &batch.ids });
        let outcomes: Outcomes = self.call(&call).await?;
        Ok(outcomes.results.into_iter().filter_map(Outcome::answer).collect())
    }
}
