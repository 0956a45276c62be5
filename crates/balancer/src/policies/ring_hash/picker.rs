//! Maps a request's hash to an endpoint.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use xxhash_rust::xxh64::Xxh64;

use super::ring::Ring;
use crate::api::{PickArgs, PickError, PickResult, Picker, SignalRaiser};

/// The state of one endpoint for picks.
pub(super) enum EndpointState {
    /// Picks go to it.
    Ready(Arc<dyn Picker>),
    /// A pick makes it connect.
    Idle(Arc<SignalRaiser>),
    /// Picks are queued.
    Connecting,
    /// Picks skip it; if all have failed, they fail with the error of the first.
    Failed(Arc<PickError>),
}

impl PartialEq for EndpointState {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(a), Self::Ready(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            (Self::Idle(a), Self::Idle(b)) => Arc::ptr_eq(a, b),
            (Self::Connecting, Self::Connecting) => true,
            (Self::Failed(a), Self::Failed(b)) => a == b,
            _ => false,
        }
    }
}

/// A snapshot of the ring and the states of its endpoints.
pub(super) struct RingPicker {
    pub(super) ring: Arc<Ring>,
    /// In the order of the ring's members.
    pub(super) endpoints: Box<[Arc<EndpointState>]>,
    /// The header whose value is hashed, instead of the hash of the route (A76).
    pub(super) request_hash_header: Option<HeaderName>,
    /// Whether an endpoint is connecting; for picks with a random hash.
    pub(super) connecting: bool,
}

impl Picker for RingPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let hash = match &self.request_hash_header {
            // A76-02: the hash of the route.
            None => args.attributes.hash,
            Some(name) => match header_hash(args.headers, name) {
                Some(hash) => hash,
                // A76-04: a random hash.
                None => return self.pick_any(args),
            },
        };
        let mut first_failure = None;
        // A61: the first endpoint along the ring that has not failed decides.
        for endpoint in self.ring.walk(hash).filter_map(|member| self.endpoints.get(member)) {
            match &**endpoint {
                EndpointState::Ready(picker) => return picker.pick(args),
                EndpointState::Idle(raiser) => {
                    raiser.raise();
                    return PickResult::Queue;
                }
                EndpointState::Connecting => return PickResult::Queue,
                EndpointState::Failed(error) => {
                    first_failure.get_or_insert(error);
                }
            }
        }
        // A61: if all have failed, the error is that of the first endpoint for this hash. The ring is never empty, so
        // there is one.
        first_failure.map_or(PickResult::Queue, |error| PickResult::Fail(Arc::clone(error)))
    }
}

impl RingPicker {
    /// A76-05: picks the first READY endpoint from a random place on. At most one IDLE endpoint on the way connects, and
    /// none if one is connecting already.
    fn pick_any(&self, args: &mut PickArgs<'_>) -> PickResult {
        let mut requested = self.connecting;
        let mut first_failure = None;
        let walk = self.ring.walk(args.rng.next_u64());
        for endpoint in walk.filter_map(|member| self.endpoints.get(member)) {
            match &**endpoint {
                EndpointState::Ready(picker) => return picker.pick(args),
                EndpointState::Idle(raiser) if !requested => {
                    raiser.raise();
                    requested = true;
                }
                EndpointState::Idle(_) | EndpointState::Connecting => {}
                EndpointState::Failed(error) => {
                    first_failure.get_or_insert(error);
                }
            }
        }
        match first_failure {
            // A76-06: all have failed.
            Some(error) if !requested => PickResult::Fail(Arc::clone(error)),
            _ => PickResult::Queue,
        }
    }
}

/// A76-03: the hash of a header's values, joined with commas; `None` if they are empty.
pub(super) fn header_hash(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut hash = Xxh64::new(0);
    let mut length = 0;
    for (at, value) in headers.get_all(name).iter().enumerate() {
        if at > 0 {
            hash.update(b",");
            length += 1;
        }
        hash.update(value.as_bytes());
        length += value.len();
    }
    (length > 0).then(|| hash.digest())
}

impl PartialEq for RingPicker {
    /// Whether both consist of the same parts.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring)
            && self.request_hash_header == other.request_hash_header
            && self.endpoints.len() == other.endpoints.len()
            && self.endpoints.iter().zip(&other.endpoints).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}
