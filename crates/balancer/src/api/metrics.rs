//! What a backend reports of itself with a call (ORCA, gRFC A51).

use std::collections::BTreeMap;

/// One report. Numbers that the backend left out are zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackendMetrics {
    /// The share of the CPU in use; may be above 1.
    pub cpu_utilization: f64,
    /// The share of the memory in use.
    pub mem_utilization: f64,
    /// How busy the application says that it is; may be above 1.
    pub application_utilization: f64,
    /// Requests per second.
    pub rps: f64,
    /// Errors per second.
    pub eps: f64,
    /// What this call cost, by the application's own names.
    pub request_cost: BTreeMap<String, f64>,
    /// Shares of resources in use, by the application's own names.
    pub utilization: BTreeMap<String, f64>,
    /// Anything else, by the application's own names.
    pub named_metrics: BTreeMap<String, f64>,
}
