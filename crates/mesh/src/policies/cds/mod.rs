//! `cds_experimental` (gRFC A27, A37, A74, A75): the subtree of one cluster, built from its part of the `XdsConfig`.
//!
//! A leaf cluster becomes outlier_detection, xds_cluster_impl, xds_override_host and priority (one child per EDS
//! priority), each above the next; an aggregate becomes priority over one cds per leaf.

mod config;
mod policy;
mod priority_names;
#[cfg(test)]
mod tests;

pub use config::{CdsConfig, CdsSettings};
