//! The result of a DNS query.

use std::net::SocketAddr;
use std::time::Duration;

/// The result of a DNS query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The addresses with the port, in order of preference.
    pub addresses: Vec<SocketAddr>,
    /// The time to live, if known.
    pub ttl: Option<Duration>,
}
