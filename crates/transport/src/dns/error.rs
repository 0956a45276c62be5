//! Errors of name resolution.

use std::fmt;
use std::net::SocketAddr;

/// A name could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveError {
    host: String,
    /// The DNS servers that were queried.
    pub(super) servers: Vec<SocketAddr>,
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
