//! The xDS client's state machine: [`XdsCore`].
//!
//! The driver feeds [`Input`]s and, after each, drains [`XdsCore::poll_effect`] until it is empty; it calls
//! `handle(now, Input::Tick)` when [`XdsCore::next_deadline`] has come.

mod ads_stream;
mod api;
mod cache;
mod core;
mod dump;
mod faults;
mod resource_state;
mod response;
#[cfg(test)]
mod tests;
mod update;
mod wire;

pub use self::core::XdsCore;
pub use api::{
    Effect, Input, NackMode, ResourceError, ResourceErrorKind, WatchEvent, WatchId, XdsCoreConfig,
};
pub use dump::{ErrorDump, RawResource, ResourceDump, ResourceStatus, UpdateCounts};
