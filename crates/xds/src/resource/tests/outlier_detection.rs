use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, OutlierDetection as Wire};
use envoy_types::pb::google::protobuf::{Duration as WireDuration, UInt32Value};

use super::builders::{eds_cluster, millis, seconds};
use super::{accepts, as_cluster, rejects};
use crate::resource::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};

fn with(detection: Wire) -> Cluster {
    Cluster { outlier_detection: Some(detection), ..eds_cluster() }
}

fn parsed(detection: Wire) -> EjectionSettings {
    as_cluster(accepts(&with(detection))).outlier_detection.as_deref().cloned().expect("outlier detection")
}

fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

#[test]
fn a50_without_the_field_nothing_is_detected() {
    assert_eq!(as_cluster(accepts(&eds_cluster())).outlier_detection, None);
}

#[test]
fn a50_defaults() {
    let success_rate = SuccessRateEjection {
        stdev_factor: 1900,
        enforcement_percentage: 100,
        minimum_hosts: 5,
        request_volume: 100,
    };
    let expected = EjectionSettings {
        interval: Duration::from_secs(10),
        base_ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(300),
        max_ejection_percent: 10,
        success_rate_ejection: Some(success_rate),
        failure_percentage_ejection: None,
    };
    assert_eq!(parsed(Wire::default()), expected);
    let failure = FailurePercentageEjection {
        threshold: 85,
        enforcement_percentage: 1,
        minimum_hosts: 5,
        request_volume: 50,
    };
    let enforced = Wire { enforcing_failure_percentage: number(1), ..Wire::default() };
    assert_eq!(parsed(enforced).failure_percentage_ejection, Some(failure));
}

#[test]
fn a50_every_field_counts() {
    let detection = Wire {
        interval: Some(seconds(1)),
        base_ejection_time: Some(millis(2)),
        max_ejection_time: Some(seconds(3)),
        max_ejection_percent: number(100),
        success_rate_stdev_factor: number(5),
        enforcing_success_rate: number(6),
        success_rate_minimum_hosts: number(7),
        success_rate_request_volume: number(8),
        failure_percentage_threshold: number(9),
        enforcing_failure_percentage: number(10),
        failure_percentage_minimum_hosts: number(11),
        failure_percentage_request_volume: number(12),
        ..Wire::default()
    };
    let expected = EjectionSettings {
        interval: Duration::from_secs(1),
        base_ejection_time: Duration::from_millis(2),
        max_ejection_time: Duration::from_secs(3),
        max_ejection_percent: 100,
        success_rate_ejection: Some(SuccessRateEjection {
            stdev_factor: 5,
            enforcement_percentage: 6,
            minimum_hosts: 7,
            request_volume: 8,
        }),
        failure_percentage_ejection: Some(FailurePercentageEjection {
            threshold: 9,
            enforcement_percentage: 10,
            minimum_hosts: 11,
            request_volume: 12,
        }),
    };
    assert_eq!(parsed(detection), expected);
}

#[test]
fn a50_sweeps_are_not_faster_than_every_100_ms() {
    let interval = |interval| parsed(Wire { interval: Some(interval), ..Wire::default() }).interval;
    for short in [seconds(0), millis(1), millis(99)] {
        assert_eq!(interval(short), Duration::from_millis(100));
    }
    assert_eq!(interval(millis(101)), Duration::from_millis(101));
}

#[test]
fn a50_enforcement_of_zero_turns_an_algorithm_off() {
    let detection = Wire {
        enforcing_success_rate: number(0),
        enforcing_failure_percentage: number(0),
        ..Wire::default()
    };
    let parsed = parsed(detection);
    assert_eq!((parsed.success_rate_ejection, parsed.failure_percentage_ejection), (None, None));
}

#[test]
fn a50_fields_of_envoy_alone_are_ignored() {
    let detection = Wire {
        consecutive_5xx: number(1),
        enforcing_consecutive_5xx: number(1000),
        split_external_local_origin_errors: true,
        max_ejection_time_jitter: Some(WireDuration { seconds: -1, nanos: 0 }),
        successful_active_health_check_uneject_host: Some(Default::default()),
        ..Wire::default()
    };
    assert_eq!(parsed(detection), parsed(Wire::default()));
}

#[test]
fn a50_percentages_must_not_exceed_100() {
    let too_much = number(101);
    for (detection, field) in [
        (Wire { max_ejection_percent: too_much, ..Wire::default() }, "max_ejection_percent"),
        (Wire { enforcing_success_rate: too_much, ..Wire::default() }, "enforcing_success_rate"),
        (Wire { enforcing_failure_percentage: too_much, ..Wire::default() }, "enforcing_failure_percentage"),
        (Wire { failure_percentage_threshold: too_much, ..Wire::default() }, "failure_percentage_threshold"),
    ] {
        rejects(&with(detection), &format!("outlier_detection.{field}"), "101 is more than 100 percent");
    }
}

#[test]
fn a50_durations_must_be_in_range() {
    let negative = Some(seconds(-1));
    for (detection, field) in [
        (Wire { interval: negative, ..Wire::default() }, "interval"),
        (Wire { base_ejection_time: negative, ..Wire::default() }, "base_ejection_time"),
        (Wire { max_ejection_time: negative, ..Wire::default() }, "max_ejection_time"),
    ] {
        rejects(&with(detection), &format!("outlier_detection.{field}.seconds"), "is not in the range");
    }
}
