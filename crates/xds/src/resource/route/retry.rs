//! Retry policies (gRFC A44).

use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as wire;
use proxyless_sans_io::values::Code;
use wire::retry_policy::RetryBackOff;

use super::RetryPolicy;
use crate::resource::common::duration;
use crate::resource::field::Field;

/// A44: at most five attempts, including the first.
const MAX_RETRIES: u32 = 4;

/// A44: the minimum delay.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// A44: the conditions of `retry_on` that are status codes.
const CODES: [(&str, Code); 5] = [
    ("cancelled", Code::Cancelled),
    ("deadline-exceeded", Code::DeadlineExceeded),
    ("resource-exhausted", Code::ResourceExhausted),
    ("internal", Code::Internal),
    ("unavailable", Code::Unavailable),
];

/// The retry policy of a route or virtual host.
pub(super) fn retry_policy(at: &Field<'_>, proto: &wire::RetryPolicy) -> Option<RetryPolicy> {
    // A44: other conditions are ignored.
    let conditions = || proto.retry_on.split(',').map(str::trim);
    let codes = CODES.iter().filter(|(name, _)| conditions().any(|condition| condition == *name));
    let codes = codes.map(|(_, code)| *code).collect();
    // A44: one retry by default.
    let num_retries = proto.num_retries.map_or(1, |value| value.value);
    if num_retries == 0 {
        at.field("num_retries").reject("must not be zero");
    }
    let (base_interval, max_interval) = match &proto.retry_back_off {
        Some(back_off) => intervals(&at.field("retry_back_off"), back_off)?,
        None => (Duration::from_millis(25), Duration::from_millis(250)),
    };
    Some(RetryPolicy { codes, num_retries: num_retries.min(MAX_RETRIES), base_interval, max_interval })
}

fn intervals(at: &Field<'_>, proto: &RetryBackOff) -> Option<(Duration, Duration)> {
    let at_base = at.field("base_interval");
    let base = at_base.require(proto.base_interval.as_ref()).and_then(|proto| interval(&at_base, proto));
    let at_max = at.field("max_interval");
    // A44: ten times the initial delay by default.
    let max = match &proto.max_interval {
        Some(proto) => interval(&at_max, proto),
        None => base.map(|base| base.saturating_mul(10)),
    };
    let (base, max) = (base?, max?);
    if max < base {
        at_max.reject("must not be shorter than base_interval");
    }
    Some((base.max(MIN_INTERVAL), max.max(MIN_INTERVAL)))
}

fn interval(at: &Field<'_>, proto: &envoy_types::pb::google::protobuf::Duration) -> Option<Duration> {
    let interval = duration(at, proto)?;
    if interval.is_zero() {
        return at.fail("must be longer than zero");
    }
    Some(interval)
}
