//! Load balancing as a pure state machine: the policy [`api`], the policy [`tree`] with its subchannel pool, and the
//! [`policies`] that need no xDS.
//!
//! Inputs are configurations, connection events, signals of pickers and the time; outputs are connection commands and
//! the state and [`Picker`](api::Picker) of the root policy. There are no clocks, sockets or tasks here; the only lock
//! guards the list of dropped handles, which picks never take.
//!
//! This crate is an implementation detail of [proxyless](https://docs.rs/proxyless): it promises no semver stability.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod api;
pub mod policies;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::panic, reason = "tests only")]
pub mod testing;
pub mod tree;

mod address;
mod petiole;
mod pool;
mod subchannel;
mod targets;
