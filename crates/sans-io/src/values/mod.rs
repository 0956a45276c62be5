//! Plain values that more than one core uses: data and its names, without behaviour.
//!
//! `xds` reads most of them from resources and `balancer` uses them in policies; neither knows the other, so the types
//! are here.

mod backend_metrics;
mod code;
mod dns_answer;
mod ejection;
mod endpoint_extras;
mod health;
mod locality;

pub use backend_metrics::BackendMetrics;
pub use code::Code;
pub use dns_answer::DnsAnswer;
pub use ejection::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};
pub use endpoint_extras::EndpointExtras;
pub use health::EndpointHealth;
pub use locality::Locality;
