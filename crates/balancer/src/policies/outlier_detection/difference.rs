//! The difference of two endpoint lists, by pointer.

use std::sync::Arc;

use crate::api::{Endpoint, Endpoints};

/// The distance to search for an endpoint that moved.
const AHEAD: usize = 4;

/// The endpoints that are in only one of two lists, or were not found in the other.
pub(super) struct Difference<'a> {
    pub(super) gone: Vec<&'a Arc<Endpoint>>,
    pub(super) new: Vec<&'a Arc<Endpoint>>,
}

impl<'a> Difference<'a> {
    /// Compares pointers only, without reading endpoints.
    pub(super) fn between(old: &'a Endpoints, new: &'a Endpoints) -> Self {
        let mut gone: Vec<_> = flat(old).into_iter().map(Some).collect();
        let (mut found_new, mut cursor) = (Vec::new(), 0);
        for (place, endpoint) in flat(new).into_iter().enumerate() {
            let mut places = (cursor..cursor + AHEAD).chain([place]);
            let is_same = |old: &&'a Arc<Endpoint>| Arc::ptr_eq(old, endpoint);
            let found = places.find(|&at| gone.get(at).is_some_and(|old| old.as_ref().is_some_and(is_same)));
            match found.and_then(|at| gone.get_mut(at).map(|old| (at, old))) {
                Some((at, old)) => {
                    *old = None;
                    cursor = at + 1;
                }
                None => found_new.push(endpoint),
            }
        }
        Self { gone: gone.into_iter().flatten().collect(), new: found_new }
    }
}

fn flat(endpoints: &Endpoints) -> Vec<&Arc<Endpoint>> {
    let mut flat = Vec::with_capacity(endpoints.count());
    endpoints.flatten(&mut |endpoint| flat.push(endpoint));
    flat
}
