//! The tokio drivers: each is one loop around one core that maps IO to inputs and effects to IO, and takes no
//! protocol decision; only restarts after panics, the wait for a stream slot and early requests are decided here.

pub(crate) mod channel;
pub(crate) mod connection;
mod describe;
mod descriptors;
pub(crate) mod dns;
mod explain;
#[cfg(feature = "google-default")]
mod google_default;
mod load_reports;
mod lookahead;
mod lrs;
pub(crate) mod management_server;
mod panics;
mod restarts;
pub(crate) mod security;
pub(crate) mod stream;
mod stream_credentials;
mod subscription;
pub(crate) mod supervisor;
mod trace;
pub(crate) mod xds;
