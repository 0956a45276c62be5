//! Compact addresses, for maps with very many keys.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address that takes half the space if it is IPv4.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompactAddress {
    V4(SocketAddrV4),
    V6(Box<SocketAddrV6>),
}

impl CompactAddress {
    pub(crate) fn get(&self) -> SocketAddr {
        match self {
            Self::V4(address) => SocketAddr::V4(*address),
            Self::V6(address) => SocketAddr::V6(**address),
        }
    }
}

impl From<SocketAddr> for CompactAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(address),
            SocketAddr::V6(address) => Self::V6(Box::new(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for address in ["10.0.0.1:80", "[fe80::1%7]:443"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(CompactAddress::from(address).get(), address);
        }
        assert!(size_of::<CompactAddress>() <= size_of::<SocketAddr>() / 2);
    }
}
