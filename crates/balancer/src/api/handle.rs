//! Owning handles of what the tree keeps for a policy. Dropping one gives the thing back.
//!
//! A drop only notes the id in a list that the maker of the handle empties before the event ends: no code of another
//! policy runs inside a drop.

use std::fmt;
use std::sync::{Arc, PoisonError};

use proxyless_sans_io::sync::Mutex;

use super::PickTarget;

/// Names a subchannel, timer or signal of one tree. Never reused: a late event for a dead id finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// The ids of handles that were dropped and not yet dealt with.
///
/// Handles live inside policies, so pushes and drains come from the one task that runs the tree; the lock only makes
/// the handles `Send`.
#[derive(Default)]
pub struct Releases(Mutex<Vec<Id>>);

impl Releases {
    /// A list for the maker of handles.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes what was dropped since the last call, in order.
    pub fn drain(&self) -> Vec<Id> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, id: Id) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }
}

impl fmt::Debug for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Releases")
    }
}

#[derive(Debug)]
struct Handle {
    id: Id,
    releases: Arc<Releases>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.releases.note(self.id);
    }
}

/// A policy's share of a subchannel.
#[derive(Debug)]
pub struct Subchannel {
    handle: Handle,
    target: Arc<PickTarget>,
}

impl Subchannel {
    /// A handle that notes `id` in `releases` when it is dropped.
    #[must_use]
    pub fn new(id: Id, target: Arc<PickTarget>, releases: Arc<Releases>) -> Self {
        Self { handle: Handle { id, releases }, target }
    }

    /// The name that its events carry.
    #[must_use]
    pub fn id(&self) -> Id {
        self.handle.id
    }

    /// What pickers give to calls for it.
    #[must_use]
    pub fn target(&self) -> &Arc<PickTarget> {
        &self.target
    }
}

/// A running timer.
#[derive(Debug)]
pub struct Timer(Handle);

impl Timer {
    /// A handle that notes `id` in `releases` when it is dropped.
    #[must_use]
    pub fn new(id: Id, releases: Arc<Releases>) -> Self {
        Self(Handle { id, releases })
    }

    /// The timer's name.
    #[must_use]
    pub fn id(&self) -> Id {
        self.0.id
    }
}
