//! `xds_override_host_experimental` (gRFC A55, A61, A75): sends the RPCs of a session to the endpoint in their cookie.
//!
//! It is above the priority policy and so knows the endpoints of all priorities. It passes subchannels through to its
//! child, keeps those that sessions need when the child drops them, and creates its own when the child has none. The
//! state of every endpoint is in atomics that the picker reads: no lock, and no new picker for a new state.
//!
//! If the channel has no session filter ([`Sessions::Unused`]), it passes on its child's picker and only tracks the
//! child's subchannels. So filters can be added and removed without affecting the child and its failover state.
//!
//! Decision: it uses connectivity, not health, so an endpoint that outlier detection ejected still serves its sessions.

mod config;
mod draining;
mod host_state;
mod hosts;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use config::{OverrideHostConfig, Sessions};
