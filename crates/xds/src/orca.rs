//! The load report that a backend sends with a call or out of band (ORCA, gRFC A51). Written by hand, because the crate of Envoy's
//! messages lacks it.

use std::collections::BTreeMap;
use std::time::Duration;

use envoy_types::pb::google::protobuf;

/// The trailer that carries an encoded [`OrcaLoadReport`].
pub const TRAILER: &str = "endpoint-load-metrics-bin";

/// `xds.data.orca.v3.OrcaLoadReport`, without its deprecated field.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReport {
    /// CPU utilization.
    #[prost(double, tag = "1")]
    pub cpu_utilization: f64,
    /// Memory utilization.
    #[prost(double, tag = "2")]
    pub mem_utilization: f64,
    /// The cost of this call, by name.
    #[prost(btree_map = "string, double", tag = "4")]
    pub request_cost: BTreeMap<String, f64>,
    /// Utilization of other resources, by name.
    #[prost(btree_map = "string, double", tag = "5")]
    pub utilization: BTreeMap<String, f64>,
    /// Requests per second.
    #[prost(double, tag = "6")]
    pub rps_fractional: f64,
    /// Errors per second.
    #[prost(double, tag = "7")]
    pub eps: f64,
    /// Other metrics, by name.
    #[prost(btree_map = "string, double", tag = "8")]
    pub named_metrics: BTreeMap<String, f64>,
    /// Utilization as defined by the application.
    #[prost(double, tag = "9")]
    pub application_utilization: f64,
}

/// `xds.service.orca.v3.OrcaLoadReportRequest`: the request of out-of-band reports.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OrcaLoadReportRequest {
    /// The interval; the server may report less often.
    #[prost(message, optional, tag = "1")]
    pub report_interval: Option<protobuf::Duration>,
    /// The names of request costs to report; all if there are none.
    #[prost(string, repeated, tag = "2")]
    pub request_cost_names: Vec<String>,
}

impl OrcaLoadReportRequest {
    /// A request of all metrics at this interval.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        let report_interval = protobuf::Duration {
            seconds: i64::try_from(interval.as_secs()).unwrap_or(i64::MAX),
            nanos: interval.subsec_nanos().cast_signed(),
        };
        Self { report_interval: Some(report_interval), request_cost_names: Vec::new() }
    }
}
