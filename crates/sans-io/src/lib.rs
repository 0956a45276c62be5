//! The types that the sans-IO cores of proxyless share: plain [`values`], virtual [`Time`], seeded randomness
//! ([`Rng`]), gRPC's [`Backoff`], a cursor for lists that change little ([`Nearby`]), lists whose copies share chunks
//! ([`Chunks`]), a compact map ([`SmallMap`]), equal values that share an allocation ([`Interner`]), log lines that repeat ([`Repeats`]), gRPC's [`metrics`], the types by
//! which threads share memory ([`sync`]) and avoid to ([`stripes`]), and containment of [`panics`].
//!
//! Nothing here reads a clock or gathers entropy. Drivers and the simulator pass both in, so that a core fed the same
//! inputs produces the same effects, byte for byte.
//!
//! This crate is an implementation detail of [proxyless](https://docs.rs/proxyless): it promises no semver stability.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod metrics;
pub mod panics;
pub mod stripes;
pub mod sync;
pub mod values;

mod backoff;
mod chunks;
mod interner;
mod nearby;
mod repeats;
mod rng;
mod small_map;
mod sorted;
mod time;

pub use backoff::{Backoff, BackoffConfig};
pub use chunks::Chunks;
pub use interner::Interner;
pub use nearby::Nearby;
pub use repeats::Repeats;
pub use rng::Rng;
pub use small_map::SmallMap;
pub use time::Time;
