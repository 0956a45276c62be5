//! What every sans-IO core of proxyless shares: virtual [`Time`], a seeded [`Rng`] and the gRPC [`Backoff`].
//!
//! Nothing here reads a clock or gathers entropy. Drivers and the simulator hand both in, so that a core fed the
//! same inputs gives the same effects, byte for byte.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod backoff;
mod rng;
mod time;

pub use backoff::{Backoff, BackoffConfig};
pub use rng::Rng;
pub use time::Time;
