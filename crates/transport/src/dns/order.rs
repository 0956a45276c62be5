//! The order of preference of addresses.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The number of addresses that are looked up in the routing table; each takes a socket. Further ones come after those
/// that are reachable.
const MAX_PROBES: usize = 64;

/// A subset of RFC 6724: unreachable addresses last, IPv6 before IPv4, and otherwise the server's order. Without
/// duplicates.
pub fn by_preference(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    ordered_by(addresses, has_route)
}

fn ordered_by(
    addresses: impl IntoIterator<Item = SocketAddr>,
    reachable: impl Fn(&SocketAddr) -> bool,
) -> Vec<SocketAddr> {
    let mut seen = BTreeSet::new();
    let once = addresses.into_iter().filter(|address| seen.insert(*address));
    let reachability = |i, address: &SocketAddr| match i < MAX_PROBES {
        true if reachable(address) => Reachability::Reachable,
        true => Reachability::Unreachable,
        false => Reachability::NotProbed,
    };
    let mut found: Vec<_> = once
        .enumerate()
        .map(|(i, address)| ((reachability(i, &address), address.is_ipv4()), address))
        .collect();
    // Stable: the server's order stays.
    found.sort_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, address)| address).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reachability {
    Reachable,
    NotProbed,
    Unreachable,
}

/// Whether the system has a route to the address. Connecting a UDP socket consults the routing table and sends nothing.
fn has_route(address: &SocketAddr) -> bool {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect(address)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ipv6_comes_first_and_the_servers_order_stays() {
        let given =
            addresses(&["10.0.0.2:1", "[2001:db8::2]:1", "10.0.0.1:1", "[2001:db8::1]:1", "10.0.0.2:1"]);
        let expected = addresses(&["[2001:db8::2]:1", "[2001:db8::1]:1", "10.0.0.2:1", "10.0.0.1:1"]);
        assert_eq!(ordered_by(given, |_| true), expected);
    }

    #[test]
    fn what_cannot_be_reached_goes_last() {
        let given = addresses(&["[2001:db8::2]:1", "10.0.0.1:1"]);
        assert_eq!(
            ordered_by(given.clone(), SocketAddr::is_ipv4),
            addresses(&["10.0.0.1:1", "[2001:db8::2]:1"])
        );
        assert_eq!(ordered_by(given.clone(), |_| false), given, "nothing is left out");
    }

    #[test]
    fn of_very_many_addresses_only_the_first_are_probed() {
        let all: Vec<SocketAddr> =
            (0..4000_u32).map(|i| (Ipv4Addr::from(0x0a00_0000 + i), 1).into()).collect();
        let probes = std::cell::Cell::new(0);
        let twice = all.iter().chain(&all).copied();
        let found = ordered_by(twice, |_| {
            probes.set(probes.get() + 1);
            true
        });
        assert_eq!((probes.get(), found), (MAX_PROBES, all));
    }

    #[test]
    fn the_loopback_is_reachable() {
        assert!(has_route(&"127.0.0.1:1".parse().unwrap()));
    }
}
