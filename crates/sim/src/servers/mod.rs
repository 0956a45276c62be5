//! The servers of a world: the control plane (ADS), the load reporting server (LRS) and the DNS resolver.
//!
//! [`control_plane`] serves a mesh that [`edits`] change and [`encode`] turns into resources; [`ads_model`] checks the
//! client's requests against an independent model of the protocol.

pub(crate) mod ads_model;
pub(crate) mod control_plane;
pub(crate) mod edits;
pub(crate) mod encode;
pub(crate) mod load_server;
pub(crate) mod resolver;
