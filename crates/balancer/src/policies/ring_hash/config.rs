//! The configuration of the ring_hash policy.

use super::RingHash;
use crate::api::Fields;
use crate::policy_config;

/// No ring gets more entries than this, whatever the control plane says (A42).
pub const RING_SIZE_CAP: u64 = 4096;

/// How large the ring is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingHashConfig {
    /// The ring has at least this many entries, if the cap allows.
    pub min_ring_size: u64,
    /// The ring has at most this many entries.
    pub max_ring_size: u64,
}

impl Default for RingHashConfig {
    fn default() -> Self {
        Self { min_ring_size: 1024, max_ring_size: 4096 }
    }
}

impl RingHashConfig {
    /// The smallest and the largest size to use.
    // A42: values above the client's cap are read as the cap.
    pub(super) fn limits(&self) -> (u64, u64) {
        let max = self.max_ring_size.clamp(1, RING_SIZE_CAP);
        (self.min_ring_size.clamp(1, max), max)
    }
}

policy_config!(RingHashConfig, "ring_hash_experimental", RingHash::default(), |config| {
    Fields::from_iter([
        ("minRingSize".to_owned(), config.min_ring_size.into()),
        ("maxRingSize".to_owned(), config.max_ring_size.into()),
    ])
});
