//! The version of an assignment that is in use, while the next one is read: most of its endpoints are in the next, too.
//!
//! Their address lists are shared. That saves an allocation per endpoint, and whoever compares the two versions sees at
//! a glance what is the same.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{ClusterLoadAssignment, LbEndpoint, Locality, LocalityEndpoints};

/// How many endpoints may be missing in a row without those that follow being lost sight of.
const LOOK_AHEAD: usize = 4;

/// Endpoints in the order in which they are expected. Where the order is another they are not found, which only costs.
#[derive(Default)]
pub(super) struct Known<'a> {
    localities: Vec<&'a LocalityEndpoints>,
    /// How many localities were entered.
    entered: usize,
    /// The endpoints that are still to come in the present one.
    endpoints: &'a [LbEndpoint],
}

impl<'a> Known<'a> {
    pub(super) fn new(assignment: &'a ClusterLoadAssignment) -> Self {
        Self { localities: assignment.priorities.iter().flatten().collect(), ..Self::default() }
    }

    /// Goes on to the next locality.
    pub(super) fn enter(&mut self, locality: Option<&Locality>) {
        let known = self.localities.get(self.entered).filter(|known| Some(&*known.locality) == locality);
        self.endpoints = known.map_or(&[], |known| &known.endpoints);
        self.entered += 1;
    }

    /// The list that has only this address.
    pub(super) fn addresses(&mut self, address: SocketAddr) -> Option<Arc<[SocketAddr]>> {
        let mut next = self.endpoints.iter().take(LOOK_AHEAD);
        let missing = next.position(|known| *known.addresses == [address])?;
        let (found, rest) = self.endpoints.get(missing..)?.split_first()?;
        self.endpoints = rest;
        Some(Arc::clone(&found.addresses))
    }
}
