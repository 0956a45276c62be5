//! The explanation of one call: each decision that leads to its endpoint, with the alternatives and the reasons.
//!
//! [`XdsChannel::explain`](crate::XdsChannel::explain) returns it. `to_string` renders it as text.

mod text;
mod tree;

use std::net::SocketAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use proxyless_balancer::api::ConnectivityState;
use serde::{Deserialize, Serialize};

pub(crate) use self::tree::{Picked, describe_tree, share};

/// The call to explain.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExplainRequest {
    /// The path of the method: `/package.Service/Method`.
    pub path: String,
    /// The metadata of the call.
    pub headers: HeaderMap,
}

impl ExplainRequest {
    /// A call of this method, `/package.Service/Method`, without metadata. A missing slash at the start is added.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Self { path: format!("{slash}{path}"), headers: HeaderMap::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Replaces the headers, for instance by those of `tonic::metadata::MetadataMap::into_headers`.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }
}

/// What a channel would do with a call now, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The id of the channel, as in [`ChannelView`](super::ChannelView).
    pub channel: u64,
    /// The target of the channel.
    pub target: String,
    /// The path of the method.
    pub path: String,
    /// The channel's state.
    pub state: ConnectivityState,
    /// The Listener of the channel.
    pub listener: String,
    /// The RouteConfiguration; `None` if the routes are in the Listener, or there are none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_config: Option<String>,
    /// The decisions, from the virtual host to the endpoint.
    pub decisions: Vec<Decision>,
    /// The effects of HTTP filters on the call, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
    /// The maximum duration of the call in seconds, if the route or the listener limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// The retry policy, if the route has one and the channel uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// The circuit breaker of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreakerView>,
    /// The fraction of calls that the control plane drops, by category.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<DropView>,
    /// The result.
    pub outcome: Outcome,
}

impl Explanation {
    /// The endpoint that the pick selected, if it selected one.
    #[must_use]
    pub fn endpoint(&self) -> Option<SocketAddr> {
        match self.outcome {
            Outcome::Endpoint { address } => Some(address),
            _ => None,
        }
    }

    /// The name of the chosen candidate of the first decision at this level.
    #[must_use]
    pub fn chosen(&self, level: DecisionLevel) -> Option<&str> {
        let decision = self.decisions.iter().find(|decision| decision.level == level)?;
        decision.chosen().map(|candidate| candidate.name.as_str())
    }
}

/// A choice between candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Decision {
    /// The level of the choice.
    pub level: DecisionLevel,
    /// The owner of the candidates, such as the cluster of priorities; empty if there is only one possible.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// The mechanism or the policy that decides.
    pub by: String,
    /// The candidates, in order. Those that could not be considered are left out.
    pub candidates: Vec<Candidate>,
    /// The number of candidates that were left out, after the chosen one or because they do not match.
    #[serde(default)]
    pub left_out: usize,
}

impl Decision {
    /// The chosen candidate; `None` if there is none.
    #[must_use]
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.chosen)
    }
}

/// The level of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionLevel {
    /// A virtual host of the route configuration.
    VirtualHost,
    /// A route of the virtual host.
    Route,
    /// A cluster of the route.
    Cluster,
    /// The endpoint in the session cookie (gRFC A55).
    Session,
    /// A leaf of an aggregate cluster (gRFC A37).
    LeafCluster,
    /// A priority of a cluster (gRFC A56).
    Priority,
    /// A locality of a priority.
    Locality,
    /// An endpoint.
    Endpoint,
}

/// One of the possible results of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Whether it is chosen.
    pub chosen: bool,
    /// Its connectivity, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ConnectivityState>,
    /// Its weight, if the decision is by weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The reason, as a clause.
    pub why: String,
}

impl Candidate {
    pub(crate) fn new(name: impl Into<String>, chosen: bool, why: impl Into<String>) -> Self {
        Self { name: name.into(), chosen, state: None, weight: None, why: why.into() }
    }
}

/// A retry policy (gRFC A44).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryView {
    /// The status codes that are retried.
    pub codes: Vec<String>,
    /// The maximum number of retries.
    pub retries: u32,
    /// The first pause in seconds, before it is randomized.
    pub base_interval_seconds: f64,
    /// The longest pause in seconds.
    pub max_interval_seconds: f64,
}

/// A circuit breaker (gRFC A32).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CircuitBreakerView {
    /// The cluster that it limits.
    pub cluster: String,
    /// The calls in flight, from all channels of the process.
    pub in_flight: u64,
    /// The limit.
    pub max_requests: u64,
}

/// A category of dropped calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DropView {
    /// The category.
    pub category: String,
    /// The fraction in millionths.
    pub per_million: u64,
}

/// The result of the decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The call goes to this endpoint.
    Endpoint {
        /// The address of its connection.
        address: SocketAddr,
    },
    /// The call waits.
    Waits {
        /// The reason.
        why: String,
    },
    /// The call fails, unless it waits for ready.
    Fails {
        /// The status code.
        code: String,
        /// The status message.
        message: String,
    },
    /// The call fails in any case and is not retried: it is dropped.
    Dropped {
        /// The status code.
        code: String,
        /// The status message.
        message: String,
    },
}
