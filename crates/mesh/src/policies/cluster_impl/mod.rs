//! `xds_cluster_impl_experimental` (gRFC A37, A32, A81): what a cluster does to every RPC before its endpoints are asked.
//!
//! In this order: drop by category, circuit breaking, then the child's pick, then `:authority` rewriting. Calls and
//! drops are counted for load reports (LRS) where the cluster wants them.

mod authority;
mod circuit;
mod config;
mod load;
mod load_registry;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use circuit::CircuitRegistry;
pub use config::{ClusterImplConfig, LoadReporting};
pub use load_registry::{LoadChange, LoadRegistry};
