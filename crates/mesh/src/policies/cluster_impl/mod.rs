//! `xds_cluster_impl_experimental` (gRFC A37, A32, A81): per-cluster processing of RPCs before endpoints are picked.
//!
//! In this order: drops by category, circuit breaking, the child's pick, `:authority` rewriting. Calls and drops are
//! counted for load reports (LRS) if the cluster requests them.

mod authority;
mod circuit;
mod config;
mod load;
mod load_registry;
mod picker;
mod places;
mod policy;
#[cfg(test)]
mod tests;

pub use circuit::CircuitRegistry;
pub use config::{ClusterImplConfig, LoadReporting};
pub use load_registry::{LoadChange, LoadRegistry};
