//! The filter `fault` (gRFC A33): delays and aborts of RPCs.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::common::fault::v3 as common;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3 as wire;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use proxyless_sans_io::values::Code;

use super::HttpFilterConfig;
use super::common::{denominator, duration};
use super::extension::Extension;
use super::field::Field;

/// The faults of a filter; without a delay and an abort it has no effect. istiod puts one of these into every listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultConfig {
    /// The delay, if any.
    pub delay: Option<FaultDelay>,
    /// The abort, if any. It follows the delay.
    pub abort: Option<FaultAbort>,
    /// The number of RPCs of the process with an active fault at which the filter injects no more; `None`: unlimited.
    pub max_active_faults: Option<u32>,
}

impl FaultConfig {
    /// Whether some RPC may get a fault.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        let fractions = [self.delay.map(|delay| delay.fraction), self.abort.map(|abort| abort.fraction)];
        fractions.into_iter().flatten().any(|fraction| fraction.numerator > 0)
    }
}

/// A delay before anything of an RPC is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDelay {
    /// The source of the duration.
    pub duration: DelaySource,
    /// The fraction of RPCs that are delayed.
    pub fraction: Fraction,
}

/// The source of a delay's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelaySource {
    /// The configuration.
    Fixed(Duration),
    /// A header of the RPC.
    Header,
}

/// An abort of an RPC before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAbort {
    /// The source of the status code.
    pub code: AbortSource,
    /// The fraction of RPCs that are aborted.
    pub fraction: Fraction,
}

/// The source of an abort's status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortSource {
    /// The configuration.
    Fixed(Code),
    /// A header of the RPC.
    Header,
}

/// A fraction with its denominator, which also is that of the fraction in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// The numerator, capped at the denominator.
    pub numerator: u32,
    /// The denominator: a hundred, ten thousand or a million.
    pub denominator: u32,
}

/// Parses the filter in the connection manager, and its override, which has the same type.
pub(super) fn fault(at: &Field<'_>, extension: &Extension<'_>) -> Option<HttpFilterConfig> {
    let proto: wire::HttpFault = extension.decode(at)?;
    // All violations are found, also if the first field has one.
    let delay = optional(proto.delay.as_ref(), |proto| delay(&at.field("delay"), proto));
    let abort = optional(proto.abort.as_ref(), |proto| abort(&at.field("abort"), proto));
    let max_active_faults = proto.max_active_faults.map(|max| max.value);
    let config = FaultConfig { delay: delay?.flatten(), abort: abort?.flatten(), max_active_faults };
    Some(HttpFilterConfig::Fault(Arc::new(config)))
}

/// `Some(None)` if the field is unset; `None` after a violation.
fn optional<P, T>(proto: Option<P>, parse: impl FnOnce(P) -> Option<T>) -> Option<Option<T>> {
    proto.map_or(Some(None), |proto| parse(proto).map(Some))
}

/// `Some(None)` if it has no source.
fn delay(at: &Field<'_>, proto: &common::FaultDelay) -> Option<Option<FaultDelay>> {
    use common::fault_delay::FaultDelaySecifier::{FixedDelay, HeaderDelay};
    let fraction = fraction(&at.field("percentage"), proto.percentage.as_ref());
    let source = match &proto.fault_delay_secifier {
        Some(FixedDelay(fixed)) => duration(&at.field("fixed_delay"), fixed).map(DelaySource::Fixed)?,
        Some(HeaderDelay(_)) => DelaySource::Header,
        None => return fraction.map(|_| None),
    };
    Some(Some(FaultDelay { duration: source, fraction: fraction? }))
}

/// `Some(None)` if it has no source.
fn abort(at: &Field<'_>, proto: &wire::FaultAbort) -> Option<Option<FaultAbort>> {
    use wire::fault_abort::ErrorType::{GrpcStatus, HeaderAbort, HttpStatus};
    let fraction = fraction(&at.field("percentage"), proto.percentage.as_ref());
    let code = match proto.error_type {
        // A33-10: the HTTP status is translated here, 200 to UNKNOWN (A33-11).
        Some(HttpStatus(status)) => AbortSource::Fixed(Code::from_http_status(status)),
        // A33-09: a number that is not a gRPC status is invalid.
        Some(GrpcStatus(number)) => match i32::try_from(number).ok().and_then(Code::known) {
            Some(code) => AbortSource::Fixed(code),
            None => return at.field("grpc_status").fail(format!("{number} is not a gRPC status code")),
        },
        Some(HeaderAbort(_)) => AbortSource::Header,
        None => return fraction.map(|_| None),
    };
    Some(Some(FaultAbort { code, fraction: fraction? }))
}

/// None of the RPCs, if it is unset.
fn fraction(at: &Field<'_>, proto: Option<&FractionalPercent>) -> Option<Fraction> {
    let proto = proto.copied().unwrap_or_default();
    let denominator = denominator(at, &proto)?;
    Some(Fraction { numerator: proto.numerator.min(denominator), denominator })
}
