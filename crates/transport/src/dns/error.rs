//! Errors of name resolution.

use std::fmt;
use std::net::SocketAddr;

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

/// A name could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveError {
    host: String,
    servers: Vec<SocketAddr>,
    kind: ResolveErrorKind,
}

/// The kinds of [`ResolveError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// The name does not exist.
    #[error("the name does not exist (NXDOMAIN)")]
    NotFound,
    /// The name exists, but has no addresses.
    #[error("the name has neither A nor AAAA records")]
    NoAddresses,
    /// A server answered with an error, such as SERVFAIL.
    #[error("the DNS server answered {0}")]
    Answered(String),
    /// No server answered in time.
    #[error("no DNS server answered in time")]
    TimedOut,
    /// Another error.
    #[error("{0}")]
    Failed(String),
}

impl ResolveError {
    /// Creates an error, for custom resolvers.
    pub fn new(host: &str, kind: ResolveErrorKind) -> Self {
        Self { host: host.to_owned(), servers: Vec::new(), kind }
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> &ResolveErrorKind {
        &self.kind
    }

    pub(super) fn failed(host: &str, reason: impl fmt::Display) -> Self {
        Self::new(host, ResolveErrorKind::Failed(reason.to_string()))
    }

    pub(super) fn of_servers(host: &str, servers: Vec<SocketAddr>, error: &NetError) -> Self {
        Self { servers, ..Self::new(host, kind(error)) }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.kind)?;
        for (i, server) in self.servers.iter().enumerate() {
            write!(f, "{}{server}", if i == 0 { ", asked " } else { " and " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ResolveError {}

fn kind(error: &NetError) -> ResolveErrorKind {
    match error {
        NetError::Timeout => ResolveErrorKind::TimedOut,
        NetError::Dns(DnsError::ResponseCode(code)) => answered(*code),
        NetError::Dns(DnsError::NoRecordsFound(none)) => answered(none.response_code),
        other => ResolveErrorKind::Failed(other.to_string()),
    }
}

fn answered(code: ResponseCode) -> ResolveErrorKind {
    match code {
        ResponseCode::NXDomain => ResolveErrorKind::NotFound,
        ResponseCode::NoError => ResolveErrorKind::NoAddresses,
        // The names of the codes in RFCs, which people search for.
        code => ResolveErrorKind::Answered(format!("{code:?}").to_uppercase()),
    }
}
