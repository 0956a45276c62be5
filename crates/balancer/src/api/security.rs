//! How the connections to an endpoint are secured.

use std::any::Any;
use std::fmt;

/// How the connections to an endpoint are secured: part of their identity in the pool. The settings are opaque here; the
/// driver knows their type.
pub struct Security {
    id: u64,
    settings: Box<dyn Any + Send + Sync>,
}

impl Security {
    /// Settings with an id. Equal settings must have equal ids, and others different ones; 0 stands for no settings.
    #[must_use]
    pub fn new(id: u64, settings: impl Any + Send + Sync) -> Self {
        Self { id, settings: Box::new(settings) }
    }

    /// The id of the settings.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The settings, if they are of this type.
    #[must_use]
    pub fn settings<T: Any>(&self) -> Option<&T> {
        self.settings.downcast_ref()
    }
}

impl PartialEq for Security {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Security {}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("id", &self.id).finish_non_exhaustive()
    }
}
