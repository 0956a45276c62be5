//! `xds_cluster_manager_experimental` (gRFC A28, A31): one child per cluster; the route selects the one that picks.

mod config;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use config::{ClusterManagerConfig, ManagedCluster};
