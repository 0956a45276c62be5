//! The configuration of the ring_hash policy.

use http::HeaderName;

use super::RingHash;
use crate::api::Fields;
use crate::policy_config;

/// The maximum size of a ring, whatever the control plane requests (A42).
pub const RING_SIZE_CAP: u64 = 4096;

/// The size of the ring, and the source of the hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingHashConfig {
    /// The minimum number of entries, subject to the cap.
    pub min_ring_size: u64,
    /// The maximum number of entries.
    pub max_ring_size: u64,
    /// The request header whose value is hashed, instead of the hash of the route (gRFC A76).
    pub request_hash_header: Option<HeaderName>,
}

impl Default for RingHashConfig {
    fn default() -> Self {
        Self { min_ring_size: 1024, max_ring_size: 4096, request_hash_header: None }
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
    let sizes = [
        ("minRingSize".to_owned(), config.min_ring_size.into()),
        ("maxRingSize".to_owned(), config.max_ring_size.into()),
    ];
    let header = config.request_hash_header.as_ref();
    let header = header.map(|name| ("requestHashHeader".to_owned(), name.as_str().into()));
    Fields::from_iter(sizes.into_iter().chain(header))
});
