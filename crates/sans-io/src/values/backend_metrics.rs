//! The metrics that a backend reports with a call (ORCA, gRFC A51).

use std::collections::BTreeMap;

/// One report. Missing numbers are zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendMetrics {
    /// CPU utilization; may exceed 1.
    pub cpu_utilization: f64,
    /// Memory utilization.
    pub mem_utilization: f64,
    /// Utilization as defined by the application; may exceed 1.
    pub application_utilization: f64,
    /// Requests per second.
    pub rps: f64,
    /// Errors per second.
    pub eps: f64,
    /// The cost of this call, by application-defined names.
    pub request_cost: BTreeMap<String, f64>,
    /// Utilization of other resources, by application-defined names.
    pub utilization: BTreeMap<String, f64>,
    /// Other metrics, by application-defined names.
    pub named_metrics: BTreeMap<String, f64>,
}
