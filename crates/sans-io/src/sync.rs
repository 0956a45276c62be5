//! The types by which threads share memory: those of the standard library, or of loom where models are checked.
//!
//! Code whose correctness depends on how threads interleave takes its types from here. Every build re-exports the
//! standard library and nothing else. With `--cfg proxyless_loom` (and only then is loom a dependency) the same code
//! runs inside loom, which tries all interleavings, up to a bound of preemptions, and all values that the memory
//! orderings allow a load to return: see `.ci/models`. The models are the modules called `models` of the crates.
//!
//! Loom, not shuttle: some of the code is correct only by its memory orderings, which shuttle does not weaken, and the
//! state spaces are small enough to be searched rather than sampled. The name of the cfg is our own because tokio
//! leaves parts of itself out with `--cfg loom`.

#[cfg(not(proxyless_loom))]
pub use std::sync::{Mutex, MutexGuard, OnceLock, atomic, mpsc};

#[cfg(proxyless_loom)]
pub use model::*;

#[cfg(proxyless_loom)]
mod model;
