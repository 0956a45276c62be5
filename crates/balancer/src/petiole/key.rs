//! The identity of an endpoint across updates.

use std::fmt;
use std::net::SocketAddr;

use crate::address::CompactAddress;
use crate::api::Endpoint;

/// The identity of an endpoint across updates: its set of addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EndpointKey(Addresses);

/// Most endpoints have one address, and there are many endpoints: those need no allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Addresses {
    One(CompactAddress),
    /// Sorted; zero, or two and more.
    Several(Box<[SocketAddr]>),
}

impl EndpointKey {
    /// The key of an endpoint.
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        if let [address] = *endpoint.addresses {
            return Self(Addresses::One(address.into()));
        }
        let mut addresses = endpoint.addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        Self(match *addresses {
            [address] => Addresses::One(address.into()),
            _ => Addresses::Several(addresses.into()),
        })
    }
}

impl fmt::Display for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Addresses::One(address) => write!(f, "{}", address.get()),
            Addresses::Several(addresses) => {
                for (at, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{address, endpoint_at};

    #[test]
    fn a61_key_is_the_set_of_addresses() {
        let key = |numbers: &[u16]| {
            EndpointKey::of(&endpoint_at(&numbers.iter().map(|&n| address(n)).collect::<Vec<_>>()))
        };
        assert_eq!(key(&[1, 2]), key(&[2, 1]));
        assert_eq!(key(&[1, 2]), key(&[2, 1, 2]));
        assert_eq!(key(&[1, 1]), key(&[1]));
        assert_ne!(key(&[1, 2]), key(&[1]));
        assert_eq!(key(&[2, 1]).to_string(), "10.0.0.1:80,10.0.0.2:80");
    }
}
