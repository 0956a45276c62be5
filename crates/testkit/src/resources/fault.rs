//! The fault filter (A33).

use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::common::fault::v3::FaultDelay;
use envoy_types::pb::envoy::extensions::filters::common::fault::v3::fault_delay::FaultDelaySecifier;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault};

use super::{duration, per_million};

/// Delays the given millionths of RPCs. Make it a filter with
/// [`http_filter`](super::http_filter), or an override with [`pack`](super::pack).
pub fn fault_delay(delay: Duration, millionths: u32) -> HttpFault {
    HttpFault {
        delay: Some(FaultDelay {
            percentage: Some(per_million(millionths)),
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(delay))),
        }),
        ..Default::default()
    }
}

/// Aborts the given millionths of RPCs with a gRPC status code.
pub fn fault_abort(grpc_status: u32, millionths: u32) -> HttpFault {
    let abort = FaultAbort {
        percentage: Some(per_million(millionths)),
        error_type: Some(ErrorType::GrpcStatus(grpc_status)),
        ..Default::default()
    };
    HttpFault { abort: Some(abort), ..Default::default() }
}
