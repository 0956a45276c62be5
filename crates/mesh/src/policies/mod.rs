//! The policies that depend on xDS: they turn an [`crate::xds_config::XdsConfig`] into the tree of gRFC A75.
//!
//! ```text
//! xds_cluster_manager              one child per cluster that a route or an RPC names
//! └ cds                            (for an aggregate: priority over one cds per leaf, then on as here)
//!   └ outlier_detection            ejects endpoints that fail, over all priorities
//!     └ xds_cluster_impl           drops, circuit breaking, load reports, authority
//!       └ xds_override_host        keeps sessions on their endpoints, over all priorities
//!         └ priority               one child per EDS priority
//!           └ xds_wrr_locality     or a policy that takes all localities at once
//!             └ weighted_target    one child per locality
//!               └ round_robin, ring_hash, pick_first
//! ```

pub mod cds;
pub mod cluster_impl;
pub mod cluster_manager;
pub mod custom;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod lb_policy;
pub mod override_host;
pub mod wrr_locality;
