//! RouteConfiguration (RDS, or inline in a Listener).

mod action;
mod retry;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;

pub(crate) use validate::route_configuration;

use super::{FilterOverrides, HeaderMatcher, HttpFilterConfig, PathMatcher};

/// A validated RouteConfiguration.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfiguration {
    /// Its virtual hosts, in order; may be empty (A27-74).
    pub virtual_hosts: Vec<Arc<VirtualHost>>,
}

impl RouteConfiguration {
    pub(super) fn unapplied_filters(&self) -> Vec<Arc<str>> {
        let hosts = || self.virtual_hosts.iter();
        let of_hosts = hosts().map(|host| &host.filter_overrides);
        let routes = || hosts().flat_map(|host| &host.routes);
        let of_routes = routes().map(|route| &route.filter_overrides);
        let clusters = routes().filter_map(|route| match &route.action.as_ref()?.cluster {
            ClusterSpecifier::Weighted(clusters) => Some(clusters),
            ClusterSpecifier::Cluster(_) => None,
        });
        let of_clusters = clusters.flatten().map(|cluster| &cluster.filter_overrides);
        let all = of_hosts.chain(of_routes).chain(of_clusters).flat_map(FilterOverrides::iter);
        let unapplied = all.filter(|(_, config)| matches!(config, HttpFilterConfig::Unapplied { .. }));
        unapplied.map(|(name, _)| Arc::clone(name)).collect()
    }
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    /// Its name, for people.
    pub name: String,
    /// Domain patterns: exact, `*suffix`, `prefix*` or `*`.
    pub domains: Vec<String>,
    /// Its routes, in order. Routes that gRFC A28 says to skip are not in the list.
    pub routes: Vec<Route>,
    /// The retry policy for routes without their own (gRFC A44).
    pub retry_policy: Option<RetryPolicy>,
    /// What it wants of filters (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// A route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name, for people.
    pub name: String,
    /// Which RPCs it takes.
    pub matcher: RouteMatch,
    /// What it does with them; `None` for actions that clients do not have: such an RPC fails (gRFC A36).
    pub action: Option<RouteAction>,
    /// What it wants of filters, before its virtual host (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// Which RPCs a route takes: all parts must match.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteMatch {
    /// The path.
    pub path: PathMatcher,
    /// The headers.
    pub headers: Vec<HeaderMatcher>,
    /// The share of RPCs that match at all, per million.
    pub fraction_per_million: Option<u32>,
}

/// Where a route sends its RPCs.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteAction {
    /// The cluster, or several by weight.
    pub cluster: ClusterSpecifier,
    /// The longest an RPC may take, by gRFC A31: `grpc_timeout_header_max`, else `max_stream_duration`. `None`: the
    /// listener's limit counts; zero: no limit.
    pub max_stream_duration: Option<Duration>,
    /// How the hash for ring_hash is made (gRFC A42).
    pub hash_policies: Vec<HashPolicy>,
    /// The route's own retry policy (gRFC A44); if there is one, the virtual host's does not count, even if this one
    /// has no codes.
    pub retry_policy: Option<RetryPolicy>,
    /// Rewrite `:authority` to the endpoint's host name (gRFC A81); only ever true from a trusted server.
    pub auto_host_rewrite: bool,
}

/// One cluster, or several by weight.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterSpecifier {
    /// Always this one.
    Cluster(Arc<str>),
    /// One of these; the weights add up to between 1 and `u32::MAX`. Clusters of weight zero are in the list.
    Weighted(Vec<WeightedCluster>),
}

/// A cluster and its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedCluster {
    /// The cluster's name.
    pub name: Arc<str>,
    /// Its weight.
    pub weight: u32,
    /// What it wants of filters, before its route (gRFC A39).
    pub filter_overrides: FilterOverrides,
}

/// One part of the hash of a request (gRFC A42).
#[derive(Clone, Debug, PartialEq)]
pub struct HashPolicy {
    /// What is hashed.
    pub kind: HashPolicyKind,
    /// Whether the later policies are left out if this one gave a hash.
    pub terminal: bool,
}

/// What a hash policy hashes.
#[derive(Clone, Debug, PartialEq)]
pub enum HashPolicyKind {
    /// A header's value, possibly rewritten.
    Header {
        /// The header's name, in lower case; never that of a binary header, which counts as absent.
        name: String,
        /// Replaces what matches before hashing.
        rewrite: Option<HeaderRewrite>,
    },
    /// A number that is the same for all RPCs of the channel (`filter_state` with key `io.grpc.channel_id`).
    ChannelId,
}

/// A regex and what its matches are replaced by.
#[derive(Clone, Debug)]
pub struct HeaderRewrite {
    /// What is replaced.
    pub regex: Regex,
    /// By what, in the regex crate's notation.
    pub substitution: String,
}

impl PartialEq for HeaderRewrite {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str() && self.substitution == other.substitution
    }
}

/// When failed RPCs are tried again (gRFC A44).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The gRPC status codes (numbers) that are tried again, in ascending order; none: nothing is tried again.
    pub codes: Vec<u8>,
    /// Attempts after the first: 1 to 4.
    pub num_retries: u32,
    /// The first delay; at least a millisecond.
    pub base_interval: Duration,
    /// The longest delay; not shorter than the first.
    pub max_interval: Duration,
}
