//! The schedule of DNS resolution for LOGICAL_DNS clusters (gRFC A37).
//!
//! A scheduler inside the channel core holds every name that the dependency manager requires and decides when each is
//! queried: at once, again when a policy requests it (with a minimum interval), repeatedly after a failure, and, if
//! configured, periodically. The driver only runs queries.

mod literal;
mod schedule;
mod scheduler;
#[cfg(test)]
mod tests;

use std::time::Duration;

use proxyless_sans_io::BackoffConfig;

pub use proxyless_sans_io::values::DnsAnswer;

pub(crate) use self::scheduler::{DnsOutput, DnsScheduler};

/// The id of a DNS query, unique in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(pub u64);

/// The DNS settings.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsConfig {
    /// The minimum time between the starts of two queries for one name, when re-resolution is requested. Earlier
    /// requests are delayed until then.
    pub min_resolution_interval: Duration,
    /// The time limit of a query.
    pub query_timeout: Duration,
    /// The backoff after a failed query.
    pub backoff: BackoffConfig,
    /// The schedule of unrequested queries.
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

/// The schedule of queries for a resolved name. A refresh keeps connections to unchanged addresses, and never happens
/// within a second of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsRefresh {
    /// Only when a connection failed or was lost, as in gRPC's other libraries.
    #[default]
    OnRequest,
    /// Also when the records have expired, but not within `min` of the last answer. Answers without a time to live do
    /// not expire.
    Ttl {
        /// The minimum time between an answer and the next query.
        min: Duration,
    },
    /// Also this long after each answer.
    Every(Duration),
}
