//! The configuration of the ring_hash policy.

use super::RingHash;
use crate::api::Fields;
use crate::policy_config;

/// The maximum size of a ring, whatever the control plane requests (A42).
pub const RING_SIZE_CAP: u64 = 4096;

/// The size of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingHashConfig {
    /// The minimum number of entries, subject to the cap.
    pub min_ring_size: u64,
    /// The maximum number of entries.
    pub max_ring_size: u64,
}

impl Default for RingHashConfig {
    fn default() -> Self {
        Self { min_ring_size: 1024, max_ring_size: 4096 }
    }
}

impl RingHashConfig {
    /// The minimum and maximum size, capped.
    // A42: values above the client's cap count as the cap.
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
