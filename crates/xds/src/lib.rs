//! The xDS client as a pure state machine: bootstrap, validation of resources, and the ADS and LRS protocols.
//!
//! Inputs are bytes from a management server, watches and the time; outputs are bytes to send and events for watchers.
//! There are no clocks, sockets or tasks here. Two locks guard load counters: that of a store's list, which RPCs never
//! take, and that of a locality's metrics, which an RPC takes at its end if its backend sent a requested report.
//!
//! This crate is an implementation detail of [proxyless](https://docs.rs/proxyless): it promises no semver stability.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod bootstrap;
pub mod client;
mod gates;
mod limits;
pub mod lrs;
pub mod orca;
mod percent;
pub mod resource;
mod resource_name;
mod stream_id;
mod target;
mod targets;

pub use gates::Gates;
pub use limits::Limits;
pub use stream_id::StreamId;
pub use target::{TargetError, XdsTarget};
