//! [`ChannelCore`]: all decisions of one channel, as a pure state machine.
//!
//! It combines the dependency manager (resources to one `XdsConfig`), the route table, the claims on clusters (gRFC
//! A31) and the policy tree. Inputs are the driver's observations ([`ChannelInput`]); outputs are actions for the
//! driver ([`ChannelEffect`]), with at most one new [`DataPlane`] per input: routes and picker always match.

mod api;
mod cluster_claims;
mod core;
mod describe;
mod idle;
mod managed;
#[cfg(test)]
mod tests;

pub use api::{Activity, ChannelConfig, ChannelEffect, ChannelInput, DataPlane};
pub use describe::{ClusterShare, RouteView, TreeView};

pub use self::core::ChannelCore;
