//! The number of connections that a subchannel may have (gRFC A105).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// `max_connections_per_subchannel` of the subchannels of one policy, which changes while they exist: it is not part of
/// their identity (A105-02). Clones share the value.
///
/// The policy that changes it calls [`Cx::connection_limits_changed`](super::Cx::connection_limits_changed).
#[derive(Clone, Debug, Default)]
pub struct ConnectionLimit(Arc<AtomicU32>);

impl ConnectionLimit {
    /// Sets the limit; `None`: unset. Returns true if that is a change.
    pub fn set(&self, limit: Option<u32>) -> bool {
        // Only the task that runs the tree uses it.
        let new = limit.unwrap_or_default();
        self.0.swap(new, Ordering::Relaxed) != new
    }

    /// The limit, at least 1. A105-03: 1 if it is unset.
    pub(crate) fn value(&self) -> u32 {
        self.0.load(Ordering::Relaxed).max(1)
    }
}
