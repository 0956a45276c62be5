//! The endpoints of the last update, to be used again in about their order.

use std::sync::Arc;

use proxyless_balancer::api::Endpoint;

/// How far ahead to look for an endpoint that is not where it was.
const AHEAD: usize = 4;

/// A list whose endpoints are looked for near to where they were: most updates move few.
pub(super) struct Reuse<'a> {
    known: &'a [Arc<Endpoint>],
    /// The place after that of the last one found.
    cursor: usize,
}

impl<'a> Reuse<'a> {
    pub(super) fn new(known: &'a [Arc<Endpoint>]) -> Self {
        Self { known, cursor: 0 }
    }

    /// The endpoint that is the same as the new one at this place, if it is found; it may be elsewhere.
    pub(super) fn take(&mut self, place: usize, same: impl Fn(&Endpoint) -> bool) -> Option<Arc<Endpoint>> {
        let mut places = (self.cursor..self.cursor + AHEAD).chain([place]);
        let found = places.find(|&at| self.known.get(at).is_some_and(|known| same(known)))?;
        self.cursor = found + 1;
        self.known.get(found).cloned()
    }
}
