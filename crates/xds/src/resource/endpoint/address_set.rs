//! A set of addresses as a hash table, so that a large assignment is checked for duplicates in linear time.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

#[derive(Default)]
pub(super) struct AddressSet(HashTable<SocketAddr>);

impl AddressSet {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(HashTable::with_capacity(capacity))
    }

    /// Adds an address. Returns true if it is new.
    pub(super) fn insert(&mut self, address: SocketAddr) -> bool {
        match self.0.entry(hash(&address), |other| *other == address, hash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(address);
                true
            }
        }
    }
}

/// Mixes the address by multiplications with digits of pi. No seed is needed: a server that wants its addresses
/// rejected has simpler ways than collisions.
fn hash(address: &SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let (high, low) = ((ip >> 64) as u64, ip as u64);
    let factor = high ^ 0x243f_6a88_85a3_08d3 ^ u64::from(address.port()) << 48;
    let product = u128::from(low ^ 0x1319_8a2e_0370_7344) * u128::from(factor);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_new_once() {
        let addresses = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[::a00:1]:1", "[::ffff:10.0.0.1]:1"];
        let mut set = AddressSet::default();
        for address in addresses {
            assert!(set.insert(address.parse().expect("an address")), "{address}");
        }
        for address in addresses {
            assert!(!set.insert(address.parse().expect("an address")), "{address}");
        }
    }

    #[test]
    fn neighbours_do_not_collide() {
        let ports = (0..64).map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let v4 = (0..=255).flat_map(|a| (0..=255).map(move |b| SocketAddr::from(([10, 0, a, b], 8080))));
        let v6 = (0..=9999).map(|a| SocketAddr::from(([0x2001, 0xdb8, a, 0, 0, 0, 0, 1], 8080)));
        for addresses in [ports.collect::<Vec<_>>(), v4.collect(), v6.collect()] {
            // Few collisions in either end of the hash.
            let places = addresses.len().next_power_of_two();
            for shift in [0, u64::BITS - places.trailing_zeros()] {
                let mut counts = vec![0; places];
                for address in &addresses {
                    counts[(hash(address) >> shift) as usize & (places - 1)] += 1;
                }
                assert!(counts.iter().all(|&count| count < 12), "{:?} in one place", counts.iter().max());
            }
        }
    }
}
