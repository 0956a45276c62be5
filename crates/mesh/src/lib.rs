//! The mesh as a pure state machine: from xDS resources to routes and load balancing policies.
//!
//! * [`dependency_manager`] watches resources and combines them into one consistent [`xds_config::XdsConfig`] (gRFC
//!   A74), with [`graph`] flattening aggregate clusters (A37, A99).
//! * [`dns`] schedules the resolution of LOGICAL_DNS clusters (A37).
//! * [`route_table`] chooses the cluster of an RPC (A28, A31); a [`cluster_claim`] keeps that cluster alive.
//! * [`security`] has the TLS settings of endpoints (A29).
//! * [`policies`] are the load balancing policies that depend on xDS, fed with [`endpoints`]; [`channel_core`] runs
//!   them.
//!
//! There are no clocks, sockets or tasks here; the only locks guard registries, which picks never take.
//!
//! This crate is an implementation detail of [proxyless](https://docs.rs/proxyless): it promises no semver stability.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod channel_core;
pub mod cluster_claim;
pub mod cluster_map;
pub mod dependency_manager;
pub mod dns;
pub mod endpoints;
pub mod graph;
pub mod listing;
pub mod policies;
pub mod route_table;
pub mod security;
mod targets;
pub mod virtual_host;
mod words;
pub mod xds_config;
