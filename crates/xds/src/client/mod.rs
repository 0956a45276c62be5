//! The xDS client's state machine: [`XdsCore`].
//!
//! The driver passes in each [`Input`], then drains [`XdsCore::poll_effect`] until it returns `None`; it calls
//! `handle(now, Input::Tick)` at [`XdsCore::next_deadline`].

mod ads_stream;
mod api;
mod authorities;
mod cache;
mod core;
mod delivery;
mod dump;
mod faults;
mod ids;
mod messages;
mod requested_names;
mod resource_state;
mod response;
mod server;
mod streams;
mod telemetry;
#[cfg(test)]
mod tests;
mod update;

pub use self::core::XdsCore;
pub use api::{
    Effect, EncodedRequest, Input, NackMode, ResourceError, ResourceErrorKind, WatchEvent, XdsCoreConfig,
    XdsServer,
};
pub use dump::{ErrorDump, RawResource, ResourceDump, ResourceStatus, UpdateCounts};
pub use ids::{ReadToken, ServerId, WatchId, WatchKey, WatcherId};
