//! Owning handles to subchannels, timers and signals of the tree. Dropping a handle releases its object.
//!
//! A drop only records the id in a list, which the creator of the handle drains before the event ends: no code of
//! another policy runs inside a drop.

use std::sync::{Arc, PoisonError};

use proxyless_sans_io::sync::Mutex;

use super::PickTarget;

/// The id of a subchannel, timer or signal of one tree. Never reused, so that late events are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub u64);

/// The ids of dropped handles that have not been processed yet.
///
/// Handles live inside policies, so pushes and drains come from the one task that runs the tree; the lock only makes
/// the handles `Send`.
#[derive(Debug, Default)]
pub struct Releases(Mutex<Vec<HandleId>>);

impl Releases {
    /// Creates a list for the creator of handles.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes the ids dropped since the last call, in order.
    pub fn drain(&self) -> Vec<HandleId> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn note(&self, id: HandleId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }
}

#[derive(Debug)]
struct Handle {
    id: HandleId,
    releases: Arc<Releases>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.releases.note(self.id);
    }
}

/// A policy's reference to a subchannel.
#[derive(Debug)]
pub struct SubchannelHandle {
    handle: Handle,
    target: Arc<PickTarget>,
}

impl SubchannelHandle {
    /// Creates a handle that records `id` in `releases` when it is dropped.
    #[must_use]
    pub fn new(id: HandleId, target: Arc<PickTarget>, releases: Arc<Releases>) -> Self {
        Self { handle: Handle { id, releases }, target }
    }

    /// The id used in its events.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.handle.id
    }

    /// The target that pickers pass to calls.
    #[must_use]
    pub fn target(&self) -> &Arc<PickTarget> {
        &self.target
    }
}

/// A running timer.
#[derive(Debug)]
pub struct Timer(Handle);

impl Timer {
    /// Creates a handle that records `id` in `releases` when it is dropped.
    #[must_use]
    pub fn new(id: HandleId, releases: Arc<Releases>) -> Self {
        Self(Handle { id, releases })
    }

    /// The timer's id.
    #[must_use]
    pub fn id(&self) -> HandleId {
        self.0.id
    }
}
