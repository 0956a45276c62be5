//! Maps a request's hash to an endpoint.

use std::sync::Arc;

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
}

impl Picker for RingPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let mut first_failure = None;
        // A61: the first endpoint along the ring that has not failed decides.
        for endpoint in self.ring.walk(args.attributes.hash).filter_map(|member| self.endpoints.get(member)) {
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

impl PartialEq for RingPicker {
    /// Whether both consist of the same parts.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring)
            && self.endpoints.len() == other.endpoints.len()
            && self.endpoints.iter().zip(&other.endpoints).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}
