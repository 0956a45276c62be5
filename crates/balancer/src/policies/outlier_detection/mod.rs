//! `outlier_detection` (gRFC A50, A61): temporarily ejects endpoints with many failures.
//!
//! Calls are counted by trackers added to subchannels on their way up. Ejection overrides only the *health* of
//! subchannels on the way down: connections stay, and petiole policies skip the endpoint. Both are per endpoint: the
//! addresses of an endpoint share one counter and one ejection.

mod config;
mod counter;
mod difference;
mod ejection;
mod endpoints;
mod metrics;
mod policy;

#[cfg(test)]
mod tests;

pub use config::OutlierDetectionConfig;
pub use policy::OutlierDetection;
pub use proxyless_sans_io::values::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};
