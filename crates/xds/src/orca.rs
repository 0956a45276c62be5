//! The load report that a backend sends with a call (ORCA, gRFC A51). Written by hand, because the crate of Envoy's
//! messages lacks it.

use std::collections::BTreeMap;

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
