//! `xds_override_host_experimental` (gRFC A55, A61, A75): RPCs of a session go to the endpoint that their cookie names.
//!
//! It stands above the priority policy and so knows the endpoints of all priorities. It hands its child subchannels
//! through; those that sessions need it keeps when the child lets go, and makes itself when the child has none. The
//! state of every endpoint is live in atomics that the picker reads: no lock, and no new picker for a new state.
//!
//! Where no filter of the channel knows sessions ([`Sessions::Unused`]) it passes its child's picker on, and only follows
//! the child's subchannels: filters come and go without the child noticing, which knows what has failed over.
//!
//! Decision: it goes by raw connectivity, not by health, so an endpoint that outlier detection ejected still serves its
//! sessions.

mod config;
mod draining;
mod hosts;
mod live;
mod picker;
mod policy;
#[cfg(test)]
mod tests;

pub use config::{OverrideHostConfig, Sessions};
