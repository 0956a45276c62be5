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

/// The addresses of all endpoints without duplicates, in order, with interleaved address families.
pub(super) fn flatten(endpoints: &[Arc<Endpoint>]) -> Vec<Address> {
    // Under a petiole policy there is one endpoint, usually with one address.
    if let [endpoint] = endpoints
        && let [address] = *endpoint.addresses
    {
        return vec![Address { address, endpoint: Arc::clone(endpoint) }];
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
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint_at;

    fn flat(endpoints: &[&[&str]]) -> Vec<String> {
        let parse =
            |list: &&[&str]| endpoint_at(&list.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>());
        let endpoints: Vec<_> = endpoints.iter().map(parse).map(Arc::new).collect();
        flatten(&endpoints).into_iter().map(|a| a.address.to_string()).collect()
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
