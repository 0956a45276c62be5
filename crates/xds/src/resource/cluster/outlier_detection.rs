//! `Cluster.outlier_detection` (gRFC A50): the criteria and duration of ejections.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::google::protobuf;

use crate::resource::field::Field;
use crate::resource::wire::duration;

/// The shortest sweep interval. Envoy's message allows any interval above zero, but a sweep visits every endpoint.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The outlier detection settings. Envoy's fields that gRPC does not have are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// The sweep interval; 10 s by default, at least 100 ms.
    pub interval: Duration,
    /// The duration of an endpoint's first ejection; 30 s by default.
    pub base_ejection_time: Duration,
    /// The maximum duration of an ejection; 300 s by default.
    pub max_ejection_time: Duration,
    /// The maximum percentage of endpoints that are ejected at once; 10 by default.
    pub max_ejection_percent: u32,
    /// Ejects endpoints with a success rate far below the mean; `None`: disabled.
    pub success_rate_ejection: Option<SuccessRateEjection>,
    /// Ejects endpoints above a fixed failure percentage; `None`: disabled.
    pub failure_percentage_ejection: Option<FailurePercentageEjection>,
}

/// Ejection by comparison with the other endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuccessRateEjection {
    /// The number of standard deviations below the mean, in thousandths, at which an endpoint is ejected; 1900 by
    /// default.
    pub stdev_factor: u32,
    /// The probability in percent that an outlier is actually ejected; 100 by default, never 0.
    pub enforcement_percentage: u32,
    /// The minimum number of endpoints with sufficient request volume; 5 by default.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval; 100 by default.
    pub request_volume: u32,
}

/// Ejection by a fixed threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePercentageEjection {
    /// The failure percentage above which an endpoint is ejected; 85 by default.
    pub threshold: u32,
    /// The probability in percent that an outlier is actually ejected; never 0.
    pub enforcement_percentage: u32,
    /// The minimum number of endpoints with sufficient request volume; 5 by default.
    pub minimum_hosts: u32,
    /// The minimum number of requests of an endpoint in an interval; 50 by default.
    pub request_volume: u32,
}

pub(super) fn outlier_detection(at: &Field<'_>, proto: &wire::OutlierDetection) -> Option<OutlierDetection> {
    let interval = span(&at.field("interval"), proto.interval.as_ref(), 10);
    let base = span(&at.field("base_ejection_time"), proto.base_ejection_time.as_ref(), 30);
    let max = span(&at.field("max_ejection_time"), proto.max_ejection_time.as_ref(), 300);
    let percent = percent(&at.field("max_ejection_percent"), proto.max_ejection_percent, 10);
    let success_rate = success_rate_ejection(at, proto);
    let failure_percentage = failure_percentage_ejection(at, proto);
    Some(OutlierDetection {
        interval: interval?.max(MIN_INTERVAL),
        base_ejection_time: base?,
        max_ejection_time: max?,
        max_ejection_percent: percent?,
        success_rate_ejection: success_rate,
        failure_percentage_ejection: failure_percentage,
    })
}

fn success_rate_ejection(at: &Field<'_>, proto: &wire::OutlierDetection) -> Option<SuccessRateEjection> {
    // A50: an enforcement percentage of zero disables the algorithm; an unset one enables it.
    let enforcing = percent(&at.field("enforcing_success_rate"), proto.enforcing_success_rate, 100)?;
    (enforcing > 0).then(|| SuccessRateEjection {
        stdev_factor: number(proto.success_rate_stdev_factor, 1900),
        enforcement_percentage: enforcing,
        minimum_hosts: number(proto.success_rate_minimum_hosts, 5),
        request_volume: number(proto.success_rate_request_volume, 100),
    })
}

fn failure_percentage_ejection(
    at: &Field<'_>,
    proto: &wire::OutlierDetection,
) -> Option<FailurePercentageEjection> {
    // A50: an enforcement percentage of zero disables the algorithm, and so does an unset one.
    let enforcing =
        percent(&at.field("enforcing_failure_percentage"), proto.enforcing_failure_percentage, 0)?;
    let threshold =
        percent(&at.field("failure_percentage_threshold"), proto.failure_percentage_threshold, 85)?;
    (enforcing > 0).then(|| FailurePercentageEjection {
        threshold,
        enforcement_percentage: enforcing,
        minimum_hosts: number(proto.failure_percentage_minimum_hosts, 5),
        request_volume: number(proto.failure_percentage_request_volume, 50),
    })
}

/// A50: a duration must be valid and not negative.
fn span(at: &Field<'_>, proto: Option<&protobuf::Duration>, default: u64) -> Option<Duration> {
    match proto {
        Some(proto) => duration(at, proto),
        None => Some(Duration::from_secs(default)),
    }
}

/// A50: a percentage must not exceed 100.
fn percent(at: &Field<'_>, proto: Option<protobuf::UInt32Value>, default: u32) -> Option<u32> {
    let value = number(proto, default);
    if value > 100 {
        at.reject(format!("{value} is more than 100 percent"));
        return None;
    }
    Some(value)
}

fn number(proto: Option<protobuf::UInt32Value>, default: u32) -> u32 {
    proto.map_or(default, |proto| proto.value)
}
