//! Owns what the native door is sent, and turning it into commands: whatever is wrong with a request stops here.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_core::command::Acquire;
use tenure_core::lease::{Mode, Resources};
use tenure_core::limits::{
    GRACE_MS_MAX, IDEMPOTENCY_KEY_BYTES_MAX, METADATA_BYTES_MAX, METADATA_DEPTH_MAX, REASON_BYTES_MAX,
    RENEWALS_PER_REQUEST_MAX, RESOURCES_PER_ACQUIRE_MAX, WAIT_MS_MAX,
};
use tenure_core::{Holder, LeaseId, Resource, Token, Ttl, json};
use utoipa::ToSchema;

use super::model::ModeName;
use crate::http::error::{Code, Problem};

/// The ttl of an acquire that names none.
pub(crate) const TTL_MS_DEFAULT: u64 = 30_000;

/// Take resources, all or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcquireRequest<'a> {
    /// What to take, `kind:name`. Give this or `resources`.
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>, example = "path:src/main.rs")]
    resource: Option<Cow<'a, str>>,
    /// What to take, all or none.
    #[serde(default, borrow)]
    #[schema(value_type = Option<Vec<String>>, max_items = 64)]
    resources: Option<Vec<Cow<'a, str>>>,
    /// Who takes it; may stand in the header X-Tenure-Holder instead.
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>, example = "agent-7")]
    pub(crate) holder: Option<Cow<'a, str>>,
    /// For how long without a renewal.
    #[schema(minimum = 0.1, maximum = 2_592_000, default = 30)]
    ttl_seconds: Option<f64>,
    #[schema(value_type = Option<ModeName>)]
    mode: Option<Mode>,
    /// How long to wait in line; without it the answer comes at once.
    #[schema(minimum = 0, maximum = 86_400)]
    wait_seconds: Option<f64>,
    /// How long the resources stay closed if the holder is lost.
    #[schema(minimum = 0, maximum = 86_400)]
    grace_seconds: Option<f64>,
    /// A lease of the same holder to live within.
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>, example = "lease-60312-17")]
    within: Option<Cow<'a, str>>,
    /// A note of your own: a JSON object of at most 4,096 bytes and 64 levels, kept as it comes but for blanks.
    #[serde(default, borrow)]
    #[schema(value_type = Option<Object>)]
    metadata: Option<&'a RawValue>,
}

impl AcquireRequest<'_> {
    /// The command it stands for.
    pub(crate) fn command(self, holder: Holder, key: Option<Box<str>>) -> Result<Acquire, Problem> {
        let resources = match (self.resource, self.resources) {
            (Some(one), None) => std::iter::once(parse_resource("resource", &one)?).collect(),
            (None, Some(several)) => parse_resources(&several)?,
            (Some(_), Some(_)) => {
                return Err(Problem::field("resource", "give either resource or resources, not both"));
            }
            (None, None) => return Err(Problem::field("resource", "the request names no resource")),
        };
        let ttl = parse_ttl(self.ttl_seconds)?.map_or_else(|| Ttl::from_ms_native(TTL_MS_DEFAULT), Ok);
        Ok(Acquire {
            mode: self.mode.unwrap_or_default(),
            wait_ms: self.wait_seconds.map(|seconds| parse_ms("wait_seconds", seconds, WAIT_MS_MAX)).transpose()?,
            // The bound fits, so nothing is cut off.
            grace_ms: self.grace_seconds.map_or(Ok(0), |seconds| parse_ms("grace_seconds", seconds, GRACE_MS_MAX))?
                as u32,
            within: self.within.map(|id| parse_lease("within", &id)).transpose()?.map(LeaseId::token),
            metadata: self.metadata.map(parse_metadata).transpose()?,
            key,
            ..Acquire::new(resources, holder, ttl.map_err(|why| Problem::field("ttl_seconds", why.to_string()))?)
        })
    }
}

const _: () = assert!(GRACE_MS_MAX <= u32::MAX as u64);

/// Keep one lease alive.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewRequest {
    /// A new ttl; without it the lease keeps its own.
    #[schema(minimum = 0.1, maximum = 2_592_000)]
    ttl_seconds: Option<f64>,
}

impl RenewRequest {
    pub(crate) fn ttl(&self) -> Result<Option<Ttl>, Problem> {
        parse_ttl(self.ttl_seconds)
    }
}

/// Keep many leases alive; each keeps its ttl.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewManyRequest<'a> {
    /// Which.
    #[serde(borrow)]
    #[schema(value_type = Vec<String>, max_items = 4_096)]
    ids: Vec<Cow<'a, str>>,
}

impl RenewManyRequest<'_> {
    /// Each id with its token. What is no lease id has none: such a lease was never granted, which says nothing about the others.
    pub(crate) fn leases(&self) -> Result<Vec<(&str, Option<Token>)>, Problem> {
        check_count("ids", self.ids.len(), RENEWALS_PER_REQUEST_MAX)?;
        Ok(self.ids.iter().map(|id| (&**id, id.parse().ok().map(LeaseId::token))).collect())
    }
}

/// Take a lease away from its holder.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeRequest<'a> {
    /// Why; told to the holder.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1_024)]
    reason: Cow<'a, str>,
}

impl RevokeRequest<'_> {
    pub(crate) fn reason(&self) -> Result<Box<str>, Problem> {
        let reason = self.reason.trim();
        if reason.is_empty() || reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
            let message = format!("a reason has 1 to {REASON_BYTES_MAX} bytes and no control characters");
            return Err(Problem::field("reason", message));
        }
        Ok(reason.into())
    }
}

/// Who would stop me?
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckRequest<'a> {
    /// What would be asked for.
    #[serde(borrow)]
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 64)]
    resources: Vec<Cow<'a, str>>,
    /// Leases and waits of this holder do not count: is somebody else in the way?
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>)]
    holder: Option<Cow<'a, str>>,
    #[schema(value_type = Option<ModeName>)]
    mode: Option<Mode>,
}

impl CheckRequest<'_> {
    pub(crate) fn command(self) -> Result<tenure_core::command::Check, Problem> {
        let holder = self.holder.map(|name| Holder::parse(&name)).transpose();
        Ok(tenure_core::command::Check {
            resources: parse_resources(&self.resources)?,
            mode: self.mode.unwrap_or_default(),
            holder: holder.map_err(|why| Problem::field("holder", why.to_string()))?,
        })
    }
}

/// The key of a request that may be sent again.
pub(crate) fn parse_key(key: Option<&str>) -> Result<Option<Box<str>>, Problem> {
    let Some(key) = key else { return Ok(None) };
    if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) || key.chars().any(char::is_control) {
        let message =
            format!("an idempotency key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes and no control characters");
        return Err(Problem::field("Idempotency-Key", message));
    }
    Ok(Some(key.into()))
}

pub(crate) fn parse_resource(field: &str, text: &str) -> Result<Resource, Problem> {
    Resource::parse(text).map_err(|why| Problem::field(field, why.to_string()))
}

fn parse_resources(texts: &[Cow<'_, str>]) -> Result<Resources, Problem> {
    check_count("resources", texts.len(), RESOURCES_PER_ACQUIRE_MAX)?;
    let parse = |(at, text): (usize, &Cow<'_, str>)| {
        // Only a refusal needs the name of the field.
        Resource::parse(text).map_err(|why| Problem::field(&format!("resources[{at}]"), why.to_string()))
    };
    texts.iter().enumerate().map(parse).collect()
}

fn check_count(field: &str, count: usize, max: usize) -> Result<(), Problem> {
    match count {
        0 => Err(Problem::field(field, "name at least one")),
        _ if count > max => {
            let detail = format!("{field}: at most {max} in one request, not {count}");
            Err(Problem::new(Code::LimitReached, detail).with("limit", field).with("max", max))
        }
        _ => Ok(()),
    }
}

pub(crate) fn parse_lease(field: &str, text: &str) -> Result<LeaseId, Problem> {
    text.parse().map_err(|why: tenure_core::token::BadLeaseId| Problem::field(field, why.to_string()))
}

fn parse_ttl(seconds: Option<f64>) -> Result<Option<Ttl>, Problem> {
    let Some(seconds) = seconds else { return Ok(None) };
    let ttl = Ttl::from_ms_native(to_ms(seconds).unwrap_or(u64::MAX));
    let in_seconds = |ms: u64| ms as f64 / 1_000.0;
    ttl.map(Some).map_err(|why| {
        let (min, max) = (in_seconds(why.min_ms), in_seconds(why.max_ms));
        Problem::field("ttl_seconds", format!("a ttl is {min} to {max} seconds, not {seconds}"))
    })
}

fn parse_ms(field: &str, seconds: f64, max_ms: u64) -> Result<u64, Problem> {
    to_ms(seconds)
        .filter(|ms| *ms <= max_ms)
        .ok_or_else(|| Problem::field(field, format!("this is 0 to {} seconds, not {seconds}", max_ms / 1_000)))
}

/// Whole milliseconds; nothing for what is no amount of time.
fn to_ms(seconds: f64) -> Option<u64> {
    let ms = (seconds * 1_000.0).round();
    // What is beyond the largest number is cut to it, and refused by every bound.
    (ms >= 0.0).then_some(ms as u64)
}

/// A JSON object as it came, so that numbers keep their digits, but without blanks: line breaks of the sender do not reach
/// logs and streams. What others could not read back (deep nesting, numbers out of range) is found now.
fn parse_metadata(raw: &RawValue) -> Result<Box<RawValue>, Problem> {
    let bad = |message: String| Problem::field("metadata", message);
    let depth = json::depth(raw.get());
    if depth > METADATA_DEPTH_MAX {
        return Err(bad(format!("metadata is at most {METADATA_DEPTH_MAX} levels deep, this is {depth}")));
    }
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(raw.get())
        .map_err(|error| bad(format!("metadata is a JSON object: {error}")))?;
    let text = json::without_blanks(raw.get());
    if text.len() > METADATA_BYTES_MAX {
        return Err(bad(format!("metadata has at most {METADATA_BYTES_MAX} bytes, this has {}", text.len())));
    }
    RawValue::from_string(text).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_seconds_become_milliseconds_within_their_range() {
        for (seconds, ms) in
            [(0.1, Some(100)), (0.0999, Some(100)), (30.0, Some(30_000)), (2_592_000.0, Some(2_592_000_000))]
        {
            assert_eq!(parse_ttl(Some(seconds)).ok().flatten().map(Ttl::ms), ms, "{seconds}");
        }
        for seconds in [0.0, -1.0, 0.09, 2_592_001.0, 1e300, f64::INFINITY, f64::NAN, -0.0] {
            let problem = parse_ttl(Some(seconds)).expect_err("out of range");
            assert!(problem.detail().contains("0.1 to 2592000 seconds"), "{}", problem.detail());
        }
    }

    #[test]
    fn metadata_is_kept_in_one_short_form_and_only_if_it_can_be_read_back() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let kept = parse_metadata(&raw("{ \"b\": 12345678901234567890123,\n \"a\": [ 1.10 ] }")).expect("an object");
        assert_eq!(kept.get(), r#"{"b":12345678901234567890123,"a":[1.10]}"#);
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert!(parse_metadata(&raw(&nested(METADATA_DEPTH_MAX))).is_ok());
        let deep = nested(METADATA_DEPTH_MAX + 1);
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(METADATA_BYTES_MAX));
        for bad in ["[]", "1", "\"x\"", "{\"a\":1e999}", "{\"a\":\"\\ud800\"}", &deep, &long] {
            assert!(parse_metadata(&raw(bad)).is_err(), "{bad}");
        }
    }
}
