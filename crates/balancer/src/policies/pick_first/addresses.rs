//! Flattens endpoints into the address list for happy eyeballs (A61 "Address List Handling in pick_first").

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::api::Endpoint;

/// An address with its endpoint.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) address: SocketAddr,
    pub(super) endpoint: Arc<Endpoint>,
}

/// A list of addresses.
pub(super) enum AddressList {
    /// The only address of an endpoint. Most lists under a petiole policy are, and there are very many.
    Of(Arc<Endpoint>),
    All(Box<[Address]>),
}

impl Default for AddressList {
    fn default() -> Self {
        Self::All(Box::default())
    }
}

impl AddressList {
    /// The addresses, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Address> + '_ {
        let (one, all) = match self {
            Self::Of(endpoint) => (Some(endpoint), &[][..]),
            Self::All(all) => (None, &**all),
        };
        let address = |address: &SocketAddr, endpoint| Address { address: *address, endpoint };
        let one = one.and_then(|endpoint| Some(address(endpoint.addresses.first()?, Arc::clone(endpoint))));
        one.into_iter().chain(all.iter().cloned())
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::All(all) if all.is_empty())
    }
}

/// The addresses of all endpoints without duplicates, in order, with interleaved address families.
pub(super) fn flatten(endpoints: &[Arc<Endpoint>]) -> AddressList {
    if let [endpoint] = endpoints
        && endpoint.addresses.len() == 1
    {
        return AddressList::Of(Arc::clone(endpoint));
    }
    let mut seen = BTreeSet::new();
    let mut v4 = VecDeque::new();
    let mut v6 = VecDeque::new();
    let mut v6_first = None;
    for endpoint in endpoints {
        for &address in endpoint.addresses.iter().filter(|&&address| seen.insert(address)) {
            v6_first.get_or_insert(address.is_ipv6());
            let family = if address.is_ipv6() { &mut v6 } else { &mut v4 };
            family.push_back(Address { address, endpoint: Arc::clone(endpoint) });
        }
    }
    // A61: interleaves the families as in RFC 8305, section 4, starting with that of the first address.
    let (mut turn, mut other) = if v6_first == Some(true) { (v6, v4) } else { (v4, v6) };
    let mut list = Vec::with_capacity(turn.len() + other.len());
    while let Some(address) = turn.pop_front().or_else(|| other.pop_front()) {
        list.push(address);
        std::mem::swap(&mut turn, &mut other);
    }
    AddressList::All(list.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint_at;

    fn flat(endpoints: &[&[&str]]) -> Vec<String> {
        let parse =
            |list: &&[&str]| endpoint_at(&list.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>());
        let endpoints: Vec<_> = endpoints.iter().map(parse).map(Arc::new).collect();
        flatten(&endpoints).iter().map(|a| a.address.to_string()).collect()
    }

    #[test]
    fn a61_flattened_addresses_interleave_families() {
        assert_eq!(
            flat(&[&["1.1.1.1:1", "[::1]:1"], &["1.1.1.2:1", "1.1.1.3:1"], &["[::2]:1"]]),
            ["1.1.1.1:1", "[::1]:1", "1.1.1.2:1", "[::2]:1", "1.1.1.3:1"]
        );
    }

    #[test]
    fn a61_interleaving_begins_with_the_family_of_the_first_address() {
        assert_eq!(flat(&[&["[::1]:1", "[::2]:1", "1.1.1.1:1"]]), ["[::1]:1", "1.1.1.1:1", "[::2]:1"]);
    }

    #[test]
    fn an_address_is_listed_once() {
        assert_eq!(
            flat(&[&["1.1.1.1:1", "1.1.1.1:1"], &["1.1.1.2:1", "1.1.1.1:1"]]),
            ["1.1.1.1:1", "1.1.1.2:1"]
        );
    }

    #[test]
    fn no_endpoints_no_addresses() {
        assert!(flat(&[]).is_empty());
    }
}
