//! The fault filter (gRFC A33).

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::common::fault::v3 as common;
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::fault_delay::{
    FaultDelaySecifier, HeaderDelay,
};
use envoy_types::pb::envoy::extensions::filters::http::fault::v3 as wire;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::{ErrorType, HeaderAbort};
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::google::protobuf;
use proxyless_sans_io::values::Code;

use super::builders::{any, connection_manager, http_filter, listener_with, router};
use super::{accepts, as_listener, decode_message, rejects};
use crate::resource::{
    AbortSource, DelaySource, FaultAbort, FaultConfig, FaultDelay, Fraction, HttpFilterConfig, ListenerKind,
};

const AT: &str = "api_listener.api_listener.http_filters[0].typed_config";

fn listener(fault: &wire::HttpFault) -> envoy_types::pb::envoy::config::listener::v3::Listener {
    let mut manager = connection_manager();
    manager.http_filters = vec![http_filter("fault", any(fault)), router()];
    listener_with(&manager)
}

fn accepted(fault: &wire::HttpFault) -> Arc<FaultConfig> {
    let listener = as_listener(accepts(&listener(fault)));
    let ListenerKind::Api(manager) = &listener.kind else { panic!("a socket listener") };
    match &manager.filters[0].config {
        HttpFilterConfig::Fault(config) => Arc::clone(config),
        other => panic!("not a fault: {other:?}"),
    }
}

/// A percentage with this numerator, in percent (0), ten-thousandths (1) or millionths (2).
fn percentage(numerator: u32, denominator: i32) -> Option<FractionalPercent> {
    Some(FractionalPercent { numerator, denominator })
}

fn delay(source: Option<FaultDelaySecifier>, percentage: Option<FractionalPercent>) -> wire::HttpFault {
    let delay = common::FaultDelay { percentage, fault_delay_secifier: source };
    wire::HttpFault { delay: Some(delay), ..Default::default() }
}

fn fixed(seconds: i64, nanos: i32) -> Option<FaultDelaySecifier> {
    Some(FaultDelaySecifier::FixedDelay(protobuf::Duration { seconds, nanos }))
}

fn abort(source: Option<ErrorType>, percentage: Option<FractionalPercent>) -> wire::HttpFault {
    let abort = wire::FaultAbort { percentage, error_type: source, ..Default::default() };
    wire::HttpFault { abort: Some(abort), ..Default::default() }
}

#[test]
fn a33_1_a_delay_has_a_duration_and_a_fraction() {
    let config = accepted(&delay(fixed(1, 500_000_000), percentage(5, 1)));
    let duration = DelaySource::Fixed(Duration::from_millis(1500));
    let fraction = Fraction { numerator: 5, denominator: 10_000 };
    assert_eq!(config.delay, Some(FaultDelay { duration, fraction }));
    assert!(config.has_faults());
    let config = accepted(&delay(Some(FaultDelaySecifier::HeaderDelay(HeaderDelay {})), percentage(200, 0)));
    let fraction = Fraction { numerator: 100, denominator: 100 };
    assert_eq!(config.delay, Some(FaultDelay { duration: DelaySource::Header, fraction }));
}

#[test]
fn a33_2_a_filter_without_faults_is_accepted_and_has_none() {
    assert_eq!(*accepted(&wire::HttpFault::default()), FaultConfig::default());
    for fault in [
        delay(None, percentage(100, 0)),
        delay(fixed(1, 0), None),
        delay(fixed(1, 0), percentage(0, 2)),
        abort(None, percentage(100, 0)),
        abort(Some(ErrorType::GrpcStatus(5)), None),
    ] {
        assert!(!accepted(&fault).has_faults(), "{fault:?}");
    }
}

#[test]
fn a33_3_the_limit_of_active_faults_is_optional() {
    let of = |max: Option<u32>| {
        let max_active_faults = max.map(|value| protobuf::UInt32Value { value });
        accepted(&wire::HttpFault { max_active_faults, ..Default::default() }).max_active_faults
    };
    assert_eq!((of(None), of(Some(0)), of(Some(7))), (None, Some(0), Some(7)));
}

#[test]
fn a33_9_a_grpc_status_must_exist() {
    for number in 0..=16 {
        let config = accepted(&abort(Some(ErrorType::GrpcStatus(number)), percentage(1, 0)));
        let fraction = Fraction { numerator: 1, denominator: 100 };
        let code = AbortSource::Fixed(Code::from_i32(number as i32));
        assert_eq!(config.abort, Some(FaultAbort { code, fraction }));
    }
    for number in [17, 99, u32::MAX] {
        let bad = abort(Some(ErrorType::GrpcStatus(number)), None);
        rejects(&listener(&bad), &format!("{AT}.abort.grpc_status"), "is not a gRPC status code");
    }
}

#[test]
fn a33_10_a33_11_an_http_status_becomes_a_grpc_status() {
    for (http, code) in [(200, 2), (400, 13), (401, 16), (404, 12), (418, 2), (503, 14)] {
        let config = accepted(&abort(Some(ErrorType::HttpStatus(http)), percentage(1, 0)));
        let expected = AbortSource::Fixed(Code::from_i32(code));
        assert_eq!(config.abort.map(|abort| abort.code), Some(expected), "HTTP {http}");
    }
    let header = accepted(&abort(Some(ErrorType::HeaderAbort(HeaderAbort {})), percentage(1, 0)));
    assert_eq!(header.abort.map(|abort| abort.code), Some(AbortSource::Header));
}

#[test]
fn a33_all_violations_of_a_fault_are_reported() {
    let bad = wire::HttpFault {
        delay: delay(fixed(-1, 0), percentage(1, 9)).delay,
        abort: abort(Some(ErrorType::GrpcStatus(99)), percentage(1, 7)).abort,
        ..Default::default()
    };
    let found = decode_message(&listener(&bad)).expect_err("the resource should be rejected");
    let mut paths: Vec<_> = found.iter().map(|(path, _)| path.strip_prefix(AT).expect("its path")).collect();
    paths.sort_unstable();
    let expected = [
        ".abort.grpc_status",
        ".abort.percentage.denominator",
        ".delay.fixed_delay.seconds",
        ".delay.percentage.denominator",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn a33_15_features_that_grpc_lacks_are_ignored() {
    let fault = wire::HttpFault {
        upstream_cluster: "other".into(),
        downstream_nodes: vec!["other".into()],
        response_rate_limit: Some(Default::default()),
        ..abort(Some(ErrorType::GrpcStatus(5)), percentage(100, 0))
    };
    assert!(accepted(&fault).has_faults());
}
