//! `xds_wrr_locality_experimental` (gRFC A52): picks localities by their EDS weights.
//!
//! Its endpoints are those of a priority, grouped by locality; it configures weighted_target with the weights of the
//! groups.

mod config;
mod policy;
#[cfg(test)]
mod tests;

pub use config::WrrLocalityConfig;
