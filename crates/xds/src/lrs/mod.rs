//! Load reports (LRS; gRFC A27, A64, A85).
//!
//! Calls count themselves in a [`LoadStore`], with atomics only. [`LrsCore`] is the state machine that reports what the
//! stores have counted: the driver feeds [`Input`]s and, after each, drains [`LrsCore::poll_effect`] until it is empty;
//! it calls `handle(now, Input::Tick)` when [`LrsCore::next_deadline`] has come.
//!
//! Stores outlive streams, and counters only grow: the store remembers how much of them was reported. So a report that
//! could not be sent is added to the next one, and in everything that was reported of a cluster while the server wanted
//! it, issued requests are succeeded plus failed plus those in progress.

mod api;
mod cluster;
mod core;
mod locality;
mod report;
mod store;
mod stream;
#[cfg(test)]
mod tests;
mod view;

pub use self::core::LrsCore;
pub use api::{Effect, Input, LrsCoreConfig};
pub use locality::{BackendReport, LocalityLoad};
pub use store::{DropCounter, LoadStore};
pub use view::{LoadView, LocalityView};
