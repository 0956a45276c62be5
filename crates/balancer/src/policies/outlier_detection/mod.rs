//! `outlier_detection` (gRFC A50, A61): takes endpoints that fail much out of service for a while.
//!
//! Calls are counted by trackers that it adds to subchannels on their way up. Ejection rewrites only the *health* of
//! subchannels on the way down: connections stay, petiole policies leave the endpoint out. Both go by endpoint: the
//! addresses of an endpoint share one count and one fate.

mod config;
mod counter;
mod difference;
mod ejection;
mod endpoints;
mod policy;

#[cfg(test)]
mod tests;

pub use config::{Detection, FailurePercentageEjection, OutlierDetectionConfig, SuccessRateEjection};
pub use policy::OutlierDetection;
