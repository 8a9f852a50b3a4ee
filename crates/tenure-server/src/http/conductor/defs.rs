//! Owns the definition of a task as this API writes it: read, checked, and made into rules.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::limits::{ATTEMPTS_MAX, RETRY_DELAY_MS_MAX, TTL_MS_MAX};
use tenure_core::retry::{Backoff, RetryRule};
use tenure_core::task::{Defaults, Policy, RateLimit, TaskDef, TaskRules, bad_name, to_json};

use super::body::payload;
use super::fault::Fault;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Doc {
    name: Option<String>,
    retry_count: Option<i64>,
    retry_delay_seconds: Option<i64>,
    max_retry_delay_seconds: Option<i64>,
    retry_logic: Option<String>,
    backoff_scale_factor: Option<i64>,
    backoff_jitter_ms: Option<i64>,
    response_timeout_seconds: Option<i64>,
    timeout_seconds: Option<i64>,
    total_timeout_seconds: Option<i64>,
    timeout_policy: Option<String>,
    poll_timeout_seconds: Option<i64>,
    concurrent_exec_limit: Option<i64>,
    rate_limit_per_frequency: Option<i64>,
    rate_limit_frequency_in_seconds: Option<i64>,
    input_template: Option<Value>,
}

/// Collects what is wrong.
#[derive(Default)]
struct Wrong(Vec<(String, String)>);

impl Wrong {
    /// The number, or its default; noted if it is out of range.
    fn number(&mut self, path: &str, value: Option<i64>, default: u64, min: u64, max: u64) -> u64 {
        let Some(value) = value else { return default };
        match u64::try_from(value).ok().filter(|value| (min..=max).contains(value)) {
            Some(value) => value,
            None => {
                self.0.push((path.to_owned(), format!("is {min} to {max}, not {value}")));
                default
            }
        }
    }

    fn word<T: Copy>(&mut self, path: &str, value: Option<&str>, default: T, words: &[(&str, T)]) -> T {
        let Some(value) = value else { return default };
        if let Some((_, found)) = words.iter().find(|(word, _)| *word == value) {
            return *found;
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        self.0.push((path.to_owned(), format!("is one of {}, not {value}", known.join(", "))));
        default
    }
}

/// The longest lease in seconds: a worker that may be silent for longer is not held to anything.
const SECONDS_MAX: u64 = TTL_MS_MAX / 1_000;
const DELAY_S_MAX: u64 = RETRY_DELAY_MS_MAX / 1_000;

/// Reads a definition.
pub(super) fn task_def(document: &Value) -> Result<TaskDef, Fault> {
    let doc: Doc = serde_path_to_error::deserialize(document)
        .map_err(|error| Fault::invalid(vec![(error.path().to_string(), error.into_inner().to_string())]))?;
    let mut wrong = Wrong::default();
    let name = doc.name.clone().unwrap_or_default();
    if let Some(why) = bad_name(&name) {
        wrong.0.push(("name".to_owned(), why));
    }
    let rules = rules(&doc, &mut wrong);
    if !wrong.0.is_empty() {
        return Err(Fault::invalid(wrong.0));
    }
    Ok(TaskDef {
        name: name.into(),
        rules: Arc::new(rules),
        document: payload("the definition", &filled(document, &doc))?,
    })
}

fn rules(doc: &Doc, wrong: &mut Wrong) -> TaskRules {
    let response_s = wrong.number("responseTimeoutSeconds", doc.response_timeout_seconds, 3_600, 1, SECONDS_MAX);
    let attempt_s = wrong.number("timeoutSeconds", doc.timeout_seconds, 0, 0, u64::MAX / 2_000);
    let total_s = wrong.number("totalTimeoutSeconds", doc.total_timeout_seconds, 0, 0, u64::MAX / 2_000);
    if attempt_s > 0 && response_s > attempt_s && doc.response_timeout_seconds.is_some() {
        let why = format!("is at most timeoutSeconds ({attempt_s}), not {response_s}");
        wrong.0.push(("responseTimeoutSeconds".to_owned(), why));
    }
    if attempt_s > 0 && total_s > 0 && attempt_s > total_s {
        let why = format!("is at most totalTimeoutSeconds ({total_s}), not {attempt_s}");
        wrong.0.push(("timeoutSeconds".to_owned(), why));
    }
    let policies = [("RETRY", Policy::Retry), ("TIME_OUT_WF", Policy::FailWorkflow), ("ALERT_ONLY", Policy::AlertOnly)];
    let rate_count = wrong.number("rateLimitPerFrequency", doc.rate_limit_per_frequency, 0, 0, u64::from(u32::MAX));
    let rate_s = wrong.number("rateLimitFrequencyInSeconds", doc.rate_limit_frequency_in_seconds, 1, 0, 86_400);
    let concurrent = wrong.number("concurrentExecLimit", doc.concurrent_exec_limit, 0, 0, u64::from(u32::MAX));
    TaskRules {
        // A definition that bounds the attempt and says nothing of silence is not refused: silence is bounded by it.
        response_s: if attempt_s > 0 { response_s.min(attempt_s) } else { response_s },
        attempt_s,
        total_s,
        poll_s: wrong.number("pollTimeoutSeconds", doc.poll_timeout_seconds, 0, 0, u64::MAX / 2_000),
        policy: wrong.word("timeoutPolicy", doc.timeout_policy.as_deref(), Policy::FailWorkflow, &policies),
        retry: retry(doc, wrong),
        jitter_ms: wrong.number("backoffJitterMs", doc.backoff_jitter_ms, 0, 0, RETRY_DELAY_MS_MAX),
        concurrent_max: u32::try_from(concurrent).ok().filter(|max| *max > 0),
        rate: (rate_count > 0 && rate_s > 0).then_some(RateLimit { count: rate_count as u32, seconds: rate_s as u32 }),
        defaults: doc.input_template.as_ref().filter(|value| has_fields(value)).map(|value| Defaults(to_json(value))),
    }
}

fn retry(doc: &Doc, wrong: &mut Wrong) -> RetryRule {
    let logics =
        [("FIXED", Backoff::Fixed), ("EXPONENTIAL_BACKOFF", Backoff::Exponential), ("LINEAR_BACKOFF", Backoff::Linear)];
    let backoff = wrong.word("retryLogic", doc.retry_logic.as_deref(), Backoff::Fixed, &logics);
    let count = wrong.number("retryCount", doc.retry_count, 3, 0, u64::from(ATTEMPTS_MAX) - 1);
    let delay_s = wrong.number("retryDelaySeconds", doc.retry_delay_seconds, 60, 0, DELAY_S_MAX);
    let scale = wrong.number("backoffScaleFactor", doc.backoff_scale_factor, 1, 1, 1_000_000);
    let cap_s = wrong.number("maxRetryDelaySeconds", doc.max_retry_delay_seconds, 0, 0, DELAY_S_MAX);
    let scale = if backoff == Backoff::Linear { scale } else { 1 };
    RetryRule {
        backoff,
        base_delay_ms: (delay_s * 1_000).saturating_mul(scale).min(RETRY_DELAY_MS_MAX),
        max_delay_ms: if cap_s > 0 { cap_s * 1_000 } else { RETRY_DELAY_MS_MAX },
        max_attempts: count as u32 + 1,
    }
}

/// The document with what it leaves out, as clients expect it back.
fn filled(document: &Value, doc: &Doc) -> Value {
    let mut filled = json!({
        "retryCount": 3, "timeoutSeconds": 0, "inputKeys": [], "outputKeys": [], "timeoutPolicy": "TIME_OUT_WF",
        "retryLogic": "FIXED", "retryDelaySeconds": 60, "responseTimeoutSeconds": 3600, "inputTemplate": {},
        "rateLimitPerFrequency": 0, "rateLimitFrequencyInSeconds": 1, "backoffScaleFactor": 1,
        "maxRetryDelaySeconds": 0, "backoffJitterMs": 0, "totalTimeoutSeconds": 0, "enforceSchema": false,
    });
    if let (Value::Object(filled), Value::Object(given)) = (&mut filled, document) {
        filled.extend(given.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())));
        if let (None, Some(attempt)) =
            (doc.response_timeout_seconds, doc.timeout_seconds.filter(|s| *s > 0 && *s < 3_600))
        {
            filled.insert("responseTimeoutSeconds".to_owned(), attempt.into());
        }
    }
    filled
}

fn has_fields(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
}
