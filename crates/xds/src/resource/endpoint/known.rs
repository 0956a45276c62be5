//! The version of an assignment in use, while an update is read: most of its endpoints are in the update, too.
//!
//! Their address lists are shared, which saves an allocation per endpoint and lets later stages recognise unchanged
//! endpoints by pointer.

use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::Nearby;

use super::{ClusterLoadAssignment, LbEndpoint, Locality, LocalityEndpoints};

/// Endpoints in their expected order. If the order changed, they are not found, which only costs time.
#[derive(Default)]
pub(super) struct Known<'a> {
    localities: Vec<&'a LocalityEndpoints>,
    /// The number of localities entered.
    entered: usize,
    /// The endpoints of the current locality.
    endpoints: &'a [LbEndpoint],
    cursor: Nearby,
}

impl<'a> Known<'a> {
    pub(super) fn new(assignment: &'a ClusterLoadAssignment) -> Self {
        Self { localities: assignment.priorities.iter().flatten().collect(), ..Self::default() }
    }

    /// Advances to the next locality.
    pub(super) fn enter(&mut self, locality: Option<&Locality>) {
        let known = self.localities.get(self.entered).filter(|known| Some(&*known.locality) == locality);
        self.endpoints = known.map_or(&[], |known| &known.endpoints);
        self.entered += 1;
        self.cursor = Nearby::default();
    }

    /// The known list that consists of this address only.
    pub(super) fn addresses(&mut self, address: SocketAddr) -> Option<Arc<[SocketAddr]>> {
        let found = self.cursor.find_ahead(self.endpoints, |known| *known.addresses == [address])?;
        self.endpoints.get(found).map(|known| Arc::clone(&known.addresses))
    }
}
