//! The endpoints of the last update, reused in approximate order.

use std::sync::Arc;

use proxyless_balancer::api::Endpoint;

/// The distance to search for an endpoint that moved.
const AHEAD: usize = 4;

/// A list whose endpoints are searched near their old position: most updates move few.
pub(super) struct Reuse<'a> {
    known: &'a [Arc<Endpoint>],
    /// The position after the last one found.
    cursor: usize,
}

impl<'a> Reuse<'a> {
    pub(super) fn new(known: &'a [Arc<Endpoint>]) -> Self {
        Self { known, cursor: 0 }
    }

    /// The known endpoint that equals the new one at this position, if it is found.
    pub(super) fn take(&mut self, place: usize, same: impl Fn(&Endpoint) -> bool) -> Option<Arc<Endpoint>> {
        let mut places = (self.cursor..self.cursor + AHEAD).chain([place]);
        let found = places.find(|&at| self.known.get(at).is_some_and(|known| same(known)))?;
        self.cursor = found + 1;
        self.known.get(found).cloned()
    }
}
