//! `xds_wrr_locality_experimental` (gRFC A52): picks localities by the weights that EDS gives them.
//!
//! Gets a priority's endpoints grouped by locality; configures weighted_target with the weights of the groups.

mod config;
mod policy;
#[cfg(test)]
mod tests;

pub use config::WrrLocalityConfig;
