//! The weights and keys of endpoints on the ring.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::ring::Member;
use crate::api::{Endpoint, Endpoints};
use crate::petiole::EndpointKey;

/// The weights of all endpoints of an update.
pub(super) struct Weights(BTreeMap<EndpointKey, u32>);

impl Weights {
    pub(super) fn of(endpoints: &Endpoints) -> Self {
        let mut weights = Self(BTreeMap::new());
        weights.add(endpoints, 1);
        weights
    }

    /// The endpoint's member on the ring.
    pub(super) fn member(&self, endpoint: &Endpoint) -> Member {
        // A76: a non-empty hash key is used instead of the first address.
        let hash_key = endpoint.hash_key().map(|key| &**key).filter(|key| !key.is_empty());
        let first_address = || endpoint.addresses.first().map_or_else(String::new, SocketAddr::to_string);
        Member {
            key: hash_key.map_or_else(first_address, str::to_owned),
            weight: self.0.get(&EndpointKey::of(endpoint)).copied().unwrap_or(1),
        }
    }

    fn add(&mut self, endpoints: &Endpoints, factor: u32) {
        for endpoint in endpoints.list() {
            // A weight of 0 would break the ring; valid resources have none.
            let weight = factor.saturating_mul(endpoint.weight).max(1);
            // A42, A61: an endpoint that is listed repeatedly counts once, with the sum of its weights.
            self.0
                .entry(EndpointKey::of(endpoint))
                .and_modify(|sum| *sum = sum.saturating_add(weight))
                .or_insert(weight);
        }
        // A42: the weight of a locality multiplies the weights of its endpoints.
        for group in endpoints.groups() {
            self.add(&group.endpoints, factor.saturating_mul(group.weight).max(1));
        }
    }
}
