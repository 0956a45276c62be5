//! The types that replace those of the standard library in models.
//!
//! Limits of the models: types that loom does not know run as they are, as one indivisible [`Step`] (arc-swap, tokio's
//! channels, `std::sync::Arc`, [`OnceLock`]); [`mpsc`] is a double, as weak as a channel can be; [`atomic`] are loom's,
//! with fences that give SeqCst its meaning.

use std::fmt;
use std::ops::Deref;

pub use ::loom;
pub use ::loom::sync::{Mutex, MutexGuard};

pub mod atomic;
pub mod mpsc;

/// Checks a model: `run` holds whatever the threads in it do. With no more preemptions than `preemptions` per run; switches
/// where a thread blocks are not counted.
pub fn check(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(preemptions));
    builder.max_branches = 10_000;
    builder.check(run);
}

/// A moment at which threads may switch. All steps of one object are in one order, and what is before one of them
/// happens before what is after the next.
#[derive(Debug)]
pub struct Step(loom::sync::atomic::AtomicUsize);

impl Default for Step {
    fn default() -> Self {
        Self(loom::sync::atomic::AtomicUsize::new(0))
    }
}

impl Step {
    /// Takes place.
    pub fn take(&self) {
        self.0.fetch_add(1, atomic::Ordering::AcqRel);
    }

    /// How often it took place before: itself a step.
    pub fn count(&self) -> usize {
        self.0.fetch_add(0, atomic::Ordering::AcqRel)
    }
}

/// Something that loom does not know: each call of one of its methods is a [`Step`].
#[derive(Default)]
pub struct Stepped<T> {
    inner: T,
    step: Step,
}

impl<T> Stepped<T> {
    /// Wraps it.
    pub fn new(inner: T) -> Self {
        Self { inner, step: Step::default() }
    }
}

impl<T> Deref for Stepped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.step.take();
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Stepped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A cell that is written once.
#[derive(Debug)]
pub struct OnceLock<T>(Stepped<std::sync::OnceLock<T>>);

impl<T> OnceLock<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self(Stepped::new(std::sync::OnceLock::new()))
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Puts the first value in.
    ///
    /// # Errors
    /// The value, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.0.set(value)
    }

    /// The value; `init` makes it first if there is none. `init` must not let threads switch.
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(init)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
