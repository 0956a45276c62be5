//! The faults of an RPC (gRFC A33): from the filters of its route and its headers to a delay and an abort.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::Rng;
use proxyless_sans_io::values::Code;
use proxyless_xds::resource::{
    AbortSource, DelaySource, FaultConfig, FilterOverrides, Fraction, HttpFilter, HttpFilterConfig,
};

/// A fault filter with its effective configuration.
#[derive(Clone, Debug)]
pub struct FaultFilter {
    name: Arc<str>,
    config: Arc<FaultConfig>,
}

/// The fault that a filter injects into one RPC: a delay, an abort, or both in this order (A33-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the filter, for errors.
    pub filter: Arc<str>,
    /// The time before anything is sent.
    pub delay: Option<Duration>,
    /// The status code that the RPC ends with.
    pub abort: Option<Code>,
    /// The number of active faults in the process at which this one is not injected; `None`: unlimited.
    pub max_active_faults: Option<u32>,
}

/// The fault filters of a destination that may inject a fault. `overrides` are ordered from the most specific.
pub(super) fn fault_filters(filters: &[HttpFilter], overrides: &[&FilterOverrides]) -> Box<[FaultFilter]> {
    let effective = filters.iter().filter_map(|filter| {
        let HttpFilterConfig::Fault(own) = &filter.config else { return None };
        // A39: the most specific override replaces the filter's own config entirely, and enables or disables it.
        let config = match overrides.iter().find_map(|overrides| overrides.get(&filter.name)) {
            Some(HttpFilterConfig::Disabled) => return None,
            Some(HttpFilterConfig::Fault(config)) => config,
            _ => own,
        };
        let filter = || FaultFilter { name: Arc::clone(&filter.name), config: Arc::clone(config) };
        config.has_faults().then(filter)
    });
    effective.collect()
}

impl fmt::Display for FaultFilter {
    /// The faults that it may inject, with their fractions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        let percent = |fraction: Fraction| {
            f64::from(fraction.numerator) * 100.0 / f64::from(fraction.denominator.max(1))
        };
        if let Some(delay) = self.config.delay {
            let share = percent(delay.fraction);
            match delay.duration {
                DelaySource::Fixed(time) => write!(f, " delays {share} % of RPCs by {time:?}")?,
                DelaySource::Header => write!(f, " delays up to {share} % of RPCs as {DELAY} says")?,
            }
        }
        if let Some(abort) = self.config.abort {
            let and = if self.config.delay.is_some() { ", and" } else { "" };
            let share = percent(abort.fraction);
            match abort.code {
                AbortSource::Fixed(code) => write!(f, "{and} aborts {share} % of RPCs with {code}")?,
                AbortSource::Header => {
                    write!(f, "{and} aborts up to {share} % of RPCs as {ABORT_HTTP} or {ABORT_GRPC} says")?;
                }
            }
        }
        Ok(())
    }
}

impl FaultFilter {
    /// Decides whether an RPC with these headers gets a fault.
    #[must_use]
    pub fn decide(&self, headers: &HeaderMap, rng: &mut Rng) -> Option<Fault> {
        // A33-13: the two are independent, each with a random number of its own.
        let delay = self.config.delay.and_then(|delay| {
            // A33-04: headers count only if the filter says so.
            let (duration, fraction) = match delay.duration {
                DelaySource::Fixed(duration) => (Some(duration), delay.fraction),
                DelaySource::Header => {
                    (delay_header(headers), capped(delay.fraction, headers, &DELAY_PERCENTAGES))
                }
            };
            duration.filter(|duration| !duration.is_zero() && hits(fraction, rng))
        });
        let abort = self.config.abort.and_then(|abort| {
            let (code, fraction) = match abort.code {
                AbortSource::Fixed(code) => (Some(code), abort.fraction),
                AbortSource::Header => {
                    (abort_header(headers), capped(abort.fraction, headers, &ABORT_PERCENTAGES))
                }
            };
            code.filter(|_| hits(fraction, rng))
        });
        (delay.is_some() || abort.is_some()).then(|| Fault {
            filter: Arc::clone(&self.name),
            delay,
            abort,
            max_active_faults: self.config.max_active_faults,
        })
    }
}

const DELAY: &str = "x-envoy-fault-delay-request";
const ABORT_HTTP: &str = "x-envoy-fault-abort-request";
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
const DELAY_PERCENTAGES: [&str; 1] = ["x-envoy-fault-delay-request-percentage"];
/// The name in gRFC A33, and the one that gRPC's implementations read.
const ABORT_PERCENTAGES: [&str; 2] =
    ["x-envoy-fault-abort-request-percentage", "x-envoy-fault-abort-percentage"];

/// A33-06: the delay in milliseconds.
fn delay_header(headers: &HeaderMap) -> Option<Duration> {
    number(headers, DELAY).map(|millis| Duration::from_millis(millis.into()))
}

/// A33-05: an HTTP status or a gRPC status. With both the HTTP status applies, as in Envoy.
fn abort_header(headers: &HeaderMap) -> Option<Code> {
    let http = number(headers, ABORT_HTTP).filter(|status| (200..600).contains(status));
    let grpc = || number(headers, ABORT_GRPC).and_then(|number| Code::known(number.try_into().ok()?));
    http.map(Code::from_http_status).or_else(grpc)
}

/// A33-07: a header may lower the numerator, and the denominator is that of the filter.
fn capped(fraction: Fraction, headers: &HeaderMap, names: &[&str]) -> Fraction {
    let numerator = names.iter().find_map(|name| number(headers, name));
    Fraction { numerator: numerator.map_or(fraction.numerator, |n| n.min(fraction.numerator)), ..fraction }
}

/// The number in a header. A33-08: an invalid header is ignored.
fn number(headers: &HeaderMap, name: &str) -> Option<u32> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn hits(fraction: Fraction, rng: &mut Rng) -> bool {
    rng.below(fraction.denominator.into()) < fraction.numerator.into()
}
