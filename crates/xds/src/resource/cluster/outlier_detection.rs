//! `Cluster.outlier_detection` (gRFC A50): the criteria and duration of ejections.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::google::protobuf;
use proxyless_sans_io::values::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};

use crate::resource::common::duration;
use crate::resource::field::Field;

/// The shortest sweep interval. Envoy's message allows any interval above zero, but a sweep visits every endpoint.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The settings. Envoy's fields that gRPC does not have are ignored.
pub(super) fn outlier_detection(at: &Field<'_>, proto: &wire::OutlierDetection) -> Option<EjectionSettings> {
    let default = EjectionSettings::default();
    let interval = span(&at.field("interval"), proto.interval.as_ref(), default.interval);
    let base =
        span(&at.field("base_ejection_time"), proto.base_ejection_time.as_ref(), default.base_ejection_time);
    let max =
        span(&at.field("max_ejection_time"), proto.max_ejection_time.as_ref(), default.max_ejection_time);
    let at_percent = at.field("max_ejection_percent");
    let percent = percent(&at_percent, proto.max_ejection_percent, default.max_ejection_percent);
    let success_rate = success_rate_ejection(at, proto);
    let failure_percentage = failure_percentage_ejection(at, proto);
    Some(EjectionSettings {
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
fn span(at: &Field<'_>, proto: Option<&protobuf::Duration>, default: Duration) -> Option<Duration> {
    match proto {
        Some(proto) => duration(at, proto),
        None => Some(default),
    }
}

/// A50: a percentage must not exceed 100.
fn percent(at: &Field<'_>, proto: Option<protobuf::UInt32Value>, default: u32) -> Option<u32> {
    let value = number(proto, default);
    if value > 100 {
        return at.fail(format!("{value} is more than 100 percent"));
    }
    Some(value)
}

fn number(proto: Option<protobuf::UInt32Value>, default: u32) -> u32 {
    proto.map_or(default, |proto| proto.value)
}
