//! Load reports (LRS; gRFC A27, A64, A85).
//!
//! RPCs count themselves in a [`LoadStore`], using atomics only. [`LrsCore`] is the state machine that reports the
//! counts: the driver passes in each [`Input`], then drains [`LrsCore::poll_effect`] until it returns `None`; it calls
//! `handle(now, Input::Tick)` at [`LrsCore::next_deadline`].
//!
//! Stores outlive streams, and counters only grow: the store remembers how much was reported. So a report that could
//! not be sent is added to the next one, and over all reports of a cluster, issued requests equal succeeded plus failed
//! plus those in progress.

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
pub use locality::{LoadStripe, LocalityLoad, Totals};
pub use store::{DropCounter, LoadStore};
pub use view::LoadView;
