//! The difference of two endpoint lists, by pointer.

use std::sync::Arc;

use proxyless_sans_io::Nearby;

use crate::api::{Endpoint, Endpoints};

/// The endpoints that are in only one of two lists, or were not found in the other.
pub(super) struct Difference<'a> {
    pub(super) gone: Vec<&'a Arc<Endpoint>>,
    pub(super) new: Vec<&'a Arc<Endpoint>>,
}

impl<'a> Difference<'a> {
    /// Compares pointers only, without reading endpoints.
    pub(super) fn between(old: &'a Endpoints, new: &'a Endpoints) -> Self {
        let mut gone: Vec<_> = flat(old).into_iter().map(Some).collect();
        let (mut found_new, mut cursor) = (Vec::new(), Nearby::default());
        for (place, endpoint) in flat(new).into_iter().enumerate() {
            let is_same = |old: &Option<&'a Arc<Endpoint>>| old.is_some_and(|old| Arc::ptr_eq(old, endpoint));
            match cursor.find(&gone, place, is_same).and_then(|at| gone.get_mut(at)) {
                Some(old) => *old = None,
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
