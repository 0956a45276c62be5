//! The connected clients: who they are, what they ask for, have been sent and have accepted.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::SystemTime;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::service::status::v3::ClientConfig;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;

use super::streams::Protocol;
use super::subscription::{Answer, Subscription};

/// A connected client: one ADS stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientView {
    /// The number of the stream; the first one is 1.
    pub stream: u64,
    /// The address of the client.
    pub peer: Option<SocketAddr>,
    /// The node, once the first request has arrived.
    pub node: Option<Node>,
    /// Whether the stream uses the incremental protocol.
    pub is_delta: bool,
    /// The time of the stream's begin.
    pub since: SystemTime,
    /// By type URL.
    pub types: BTreeMap<String, TypeView>,
}

/// One type on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeView {
    /// The names that the client asks for; empty with a wildcard.
    pub names: Vec<String>,
    /// Whether the client asks for all resources of the type.
    pub wildcard: bool,
    /// The names of the resources that it has been sent.
    pub sent: Vec<String>,
    /// The version of the latest response.
    pub version: Option<String>,
    /// The version of the latest response that it has accepted.
    pub accepted: Option<String>,
    /// The reason of the rejection, if it has rejected the latest response.
    pub error: Option<String>,
    /// Whether the latest response has not been answered.
    pub is_pending: bool,
}

impl ClientView {
    pub(super) fn new<P: Protocol>(stream: u64, peer: Option<SocketAddr>) -> Self {
        Self {
            stream,
            peer,
            node: None,
            is_delta: P::IS_DELTA,
            since: SystemTime::now(),
            types: BTreeMap::new(),
        }
    }

    /// The node's id; `?` until it is known.
    #[must_use]
    pub fn node_id(&self) -> &str {
        self.node.as_ref().map_or("?", |node| node.id.as_str())
    }

    /// The name and version of the client's implementation.
    #[must_use]
    pub fn user_agent(&self) -> String {
        let Some(node) = &self.node else { return String::new() };
        match &node.user_agent_version_type {
            Some(UserAgentVersionType::UserAgentVersion(version)) => {
                format!("{} {version}", node.user_agent_name)
            }
            _ => node.user_agent_name.clone(),
        }
    }

    pub(super) fn refresh(&mut self, subscriptions: &BTreeMap<String, Subscription>) {
        let view = |subscription: &Subscription| TypeView {
            names: subscription.names.iter().cloned().collect(),
            wildcard: subscription.wildcard,
            sent: subscription.sent.keys().cloned().collect(),
            version: subscription.last.as_ref().map(|last| last.version.clone()),
            accepted: subscription.accepted.clone(),
            error: subscription.error.clone(),
            is_pending: subscription.last.as_ref().is_some_and(|last| last.answer == Answer::Pending),
        };
        self.types = subscriptions.iter().map(|(type_url, one)| (type_url.clone(), view(one))).collect();
    }

    /// The client as CSDS shows it: a resource per name.
    pub(super) fn csds(&self) -> ClientConfig {
        let mut generic_xds_configs = Vec::new();
        for (type_url, view) in &self.types {
            let names = view.names.iter().chain(view.sent.iter().filter(|name| !view.names.contains(name)));
            for name in names {
                let is_sent = view.sent.contains(name);
                let client_status = match (&view.error, is_sent) {
                    (_, false) => ClientResourceStatus::DoesNotExist,
                    (Some(_), true) => ClientResourceStatus::Nacked,
                    (None, true) if view.is_pending => ClientResourceStatus::Requested,
                    (None, true) => ClientResourceStatus::Acked,
                };
                let version = view.version.clone().unwrap_or_default();
                let error_state = view.error.as_ref().filter(|_| is_sent).map(|error| UpdateFailureState {
                    details: error.clone(),
                    version_info: version.clone(),
                    ..Default::default()
                });
                generic_xds_configs.push(GenericXdsConfig {
                    type_url: type_url.clone(),
                    name: name.clone(),
                    version_info: view.accepted.clone().filter(|_| is_sent).unwrap_or_default(),
                    client_status: client_status.into(),
                    error_state,
                    ..Default::default()
                });
            }
        }
        let scope = match (self.peer, self.is_delta) {
            (Some(peer), true) => format!("{peer}, incremental"),
            (Some(peer), false) => peer.to_string(),
            (None, _) => String::new(),
        };
        ClientConfig {
            node: self.node.clone(),
            generic_xds_configs,
            client_scope: scope,
            ..Default::default()
        }
    }
}
