//! When the names of LOGICAL_DNS clusters are resolved (gRFC A37).
//!
//! A scheduler inside the channel core holds every name that the dependency manager wants and decides when each is
//! queried: at once, again when a policy asks for fresh addresses (but not too often), again and again after a failure,
//! and, if so configured, from time to time. The driver runs queries and nothing else.

mod literal;
mod schedule;
mod scheduler;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use proxyless_sans_io::BackoffConfig;

pub(crate) use self::scheduler::{DnsOutput, DnsScheduler};

/// How names are resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsConfig {
    /// The least time between the starts of two queries for one name, when fresh addresses are asked for. Requests that
    /// come earlier are kept until then.
    pub min_resolution_interval: Duration,
    /// How long a query may take.
    pub query_timeout: Duration,
    /// How long to wait after a failed query.
    pub backoff: BackoffConfig,
    /// When to look for new addresses although nobody asked.
    pub refresh: DnsRefresh,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            min_resolution_interval: Duration::from_secs(30),
            query_timeout: Duration::from_secs(20),
            backoff: BackoffConfig::default(),
            refresh: DnsRefresh::default(),
        }
    }
}

/// When a name that was resolved is resolved again. A refresh leaves connections to addresses that stay alone, and is
/// never made within a second of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsRefresh {
    /// Only when a connection failed or was lost, as in gRPC's other libraries.
    #[default]
    OnRequest,
    /// Also when the records have expired, but not within `min` of the last answer. Answers without a time to live are
    /// kept.
    Ttl {
        /// The least time between an answer and the next query.
        min: Duration,
    },
    /// Also this long after each answer.
    Every(Duration),
}

/// What a name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The addresses with the port, the preferred ones first.
    pub addresses: Vec<SocketAddr>,
    /// How long they are good for, if the source says.
    pub ttl: Option<Duration>,
}
