//! RouteConfiguration (RDS, or inline in a Listener).

mod action;
mod retry;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::values::Code;
use regex::Regex;

pub(crate) use validate::route_configuration;

use super::{FilterOverrides, HeaderMatcher, PathMatcher};

/// A validated RouteConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfiguration {
    /// The virtual hosts, in order; may be empty (A27-74).
    pub virtual_hosts: Vec<Arc<VirtualHost>>,
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    /// The name, for display.
    pub name: String,
    /// Domain patterns: exact, `*suffix`, `prefix*` or `*`.
    pub domains: Vec<String>,
    /// The routes, in order, without those that gRFC A28 says to ignore.
    pub routes: Vec<Route>,
    /// The retry policy of routes without their own (gRFC A44).
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Filter overrides (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The name, for display.
    pub name: String,
    /// The condition on RPCs.
    pub matcher: RouteMatch,
    /// The action; `None` for actions that clients do not support: matching RPCs fail (gRFC A36).
    pub action: Option<RouteAction>,
    /// Filter overrides, which take precedence over those of the virtual host (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// The condition on an RPC: all parts must match.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteMatch {
    /// The condition on the path.
    pub path: PathMatcher,
    /// The conditions on headers.
    pub headers: Vec<HeaderMatcher>,
    /// The fraction of RPCs that match, in millionths.
    pub fraction_per_million: Option<u32>,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteAction {
    /// The cluster, or several with weights.
    pub cluster: ClusterSpecifier,
    /// The maximum duration of an RPC by gRFC A31: `grpc_timeout_header_max`, or else `max_stream_duration`. `None`:
    /// the listener's limit applies; zero: unlimited.
    pub max_stream_duration: Option<Duration>,
    /// The hash policies for ring_hash (gRFC A42).
    pub hash_policies: Vec<HashPolicy>,
    /// The route's retry policy (gRFC A44). If set, it replaces the virtual host's, even if it has no codes.
    pub retry_policy: Option<Arc<RetryPolicy>>,
    /// Whether `:authority` is rewritten to the endpoint's host name (gRFC A81); only ever true from a trusted server.
    pub auto_host_rewrite: bool,
}

/// One cluster, or several with weights.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterSpecifier {
    /// Always this cluster.
    Cluster(Arc<str>),
    /// One of these clusters; the sum of the weights is between 1 and `u32::MAX`. Clusters of weight zero are included.
    Weighted(Vec<WeightedCluster>),
}

/// A cluster and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedCluster {
    /// The cluster's name.
    pub name: Arc<str>,
    /// The weight.
    pub weight: u32,
    /// Filter overrides, which take precedence over those of the route (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// A component of a request's hash (gRFC A42).
#[derive(Clone, Debug, PartialEq)]
pub struct HashPolicy {
    /// The hashed value.
    pub kind: HashPolicyKind,
    /// Whether later policies are skipped if this one produced a hash.
    pub terminal: bool,
}

/// The value that a hash policy hashes.
#[derive(Clone, Debug, PartialEq)]
pub enum HashPolicyKind {
    /// A header's value, possibly rewritten.
    Header {
        /// The header's name, in lower case; never a binary header, which counts as absent.
        name: String,
        /// A rewrite applied before hashing.
        rewrite: Option<HeaderRewrite>,
    },
    /// A number that is constant for a channel (`filter_state` with key `io.grpc.channel_id`).
    ChannelId,
}

/// A regex and the substitution for its matches.
#[derive(Clone, Debug)]
pub struct HeaderRewrite {
    /// The regex.
    pub regex: Regex,
    /// The substitution, in the regex crate's notation.
    pub substitution: String,
}

impl PartialEq for HeaderRewrite {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.substitution == other.substitution
    }
}

/// The conditions for retries (gRFC A44).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The status codes that are retried, in ascending order; empty: no retries.
    pub codes: Vec<Code>,
    /// The maximum number of retries: 1 to 4.
    pub num_retries: u32,
    /// The initial delay; at least a millisecond.
    pub base_interval: Duration,
    /// The maximum delay; not below the initial one.
    pub max_interval: Duration,
}
