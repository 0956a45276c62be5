//! Addresses to connect to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address to connect to. Displayed as gRPC writes addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Address {
    /// An IP address and port.
    Tcp(SocketAddr),
    /// The path of a Unix domain socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(SocketAddr::V4(address)) => write!(f, "ipv4:{address}"),
            Self::Tcp(SocketAddr::V6(address)) => write!(f, "ipv6:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_grpc_writes_them() {
        let text = |address: &str| Address::Tcp(address.parse().expect("a socket address")).to_string();
        assert_eq!(text("1.2.3.4:80"), "ipv4:1.2.3.4:80");
        assert_eq!(text("[::1]:80"), "ipv6:[::1]:80");
        assert_eq!(Address::Unix("/run/xds.sock".into()).to_string(), "unix:/run/xds.sock");
    }
}
