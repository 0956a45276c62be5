//! A description of the tree for inspection: a snapshot of every policy, made on request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CallCounts, ConnectivityState, Detail, Endpoint, EndpointHealth, Fields, Security};

/// One policy of the tree, with its descendants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PolicyView {
    /// The policy's name.
    pub policy: String,
    /// The published state.
    pub state: ConnectivityState,
    /// The last state change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<StateChange>,
    /// The configuration, by the names in the gRFCs, without that of the children.
    #[serde(skip_serializing_if = "Fields::is_empty")]
    pub config: Fields,
    /// The error that RPCs fail with, unless a descendant has the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The problem in resolving its endpoints, unless an error mentions it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_note: Option<String>,
    /// Counters by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// Details about single endpoints, localities or sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// The child policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildPolicyView>,
    /// The endpoints, if the policy picks among endpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointView>,
}

/// A child policy with its role in the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChildPolicyView {
    /// The parent's name for it: a cluster, a priority, a locality. Empty for an only child.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The weight, if the parent has weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The role in the parent: `serving`, `failing` (RPCs fail with its error), `standby` or `deactivated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The policy.
    #[serde(flatten)]
    pub node: PolicyView,
}

/// The last state change of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateChange {
    /// The time since the change.
    #[serde(rename = "seconds_ago", with = "super::seconds")]
    pub age: Duration,
    /// The previous state.
    pub from: ConnectivityState,
    /// The cause of the change.
    pub reason: String,
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct EndpointView {
    /// The addresses, in order of preference.
    pub addresses: Vec<SocketAddr>,
    /// The state as seen by its policy.
    pub state: ConnectivityState,
    /// The address of the connection, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<SocketAddr>,
    /// Its weight.
    pub weight: u32,
    /// The health set by the control plane, unless unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// The host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The error, if it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The proxy that its connections go through (gRFC A86), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<SocketAddr>,
    /// How its connection is secured, if it is: the protocol and the server's certificate, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    /// The id of its security settings; with the address and the proxy it identifies the subchannel. 0 if there are none.
    #[doc(hidden)]
    #[serde(skip)]
    pub security_id: u64,
    /// The id of the subchannel that is connected, among those of the channel.
    #[serde(rename = "connection", skip_serializing_if = "Option::is_none")]
    pub subchannel: Option<u64>,
    /// The number of connections, if it has several (gRFC A105).
    #[serde(rename = "connection_count", skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// The calls that ended on its connections.
    pub calls: CallCounts,
}

impl PolicyView {
    /// A node with these children.
    #[must_use]
    pub fn with_children(children: Vec<ChildPolicyView>) -> Self {
        Self { children, ..Self::default() }
    }

    /// A node with one child.
    #[must_use]
    pub fn above(child: Option<Self>) -> Self {
        Self::with_children(child.into_iter().map(|node| ChildPolicyView::new("", node)).collect())
    }

    /// Sets the last state change. That of an only child in the same state is used if it is more recent.
    pub(super) fn set_changed(&mut self, own: Option<StateChange>) {
        let below = match &self.children[..] {
            [only] if only.name.is_empty() && only.node.state == self.state => only.node.changed.as_ref(),
            _ => None,
        };
        let known = [self.changed.take(), below.cloned(), own];
        self.changed = known.into_iter().flatten().min_by_key(|change| change.age);
    }

    /// Keeps errors and notes only in the deepest node or endpoint that has them, since those above repeat them.
    #[doc(hidden)]
    pub fn say_errors_once(&mut self) {
        self.say_once(&mut Vec::new());
    }

    /// Adds the errors and notes of this node and its descendants to `said`.
    fn say_once(&mut self, said: &mut Vec<String>) {
        let before = said.len();
        self.children.iter_mut().for_each(|child| child.node.say_once(said));
        said.extend(self.endpoints.iter().filter_map(|endpoint| endpoint.error.clone()));
        let below = said.get(before..).unwrap_or_default();
        self.error.take_if(|error| below.iter().any(|said| error.contains(said.as_str())));
        let own = self.error.iter();
        self.resolution_note.take_if(|note| below.iter().chain(own).any(|said| said.contains(note.as_str())));
        said.extend(self.error.iter().chain(&self.resolution_note).cloned());
    }

    /// Visits the endpoints of this policy and of its descendants.
    #[doc(hidden)]
    pub fn walk_endpoints_mut(&mut self, visit: &mut dyn FnMut(&mut EndpointView)) {
        self.endpoints.iter_mut().for_each(&mut *visit);
        self.children.iter_mut().for_each(|child| child.node.walk_endpoints_mut(visit));
    }

    /// Visits this policy and its descendants, parents first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        self.children.iter().for_each(|child| child.node.walk(visit));
    }
}

impl ChildPolicyView {
    /// A child without weight and role.
    #[must_use]
    pub fn new(name: impl Into<String>, node: PolicyView) -> Self {
        Self { name: name.into(), weight: None, role: None, node }
    }
}

impl EndpointView {
    /// A description of an endpoint without its connections.
    #[must_use]
    pub fn new(endpoint: &Endpoint, state: ConnectivityState) -> Self {
        Self {
            addresses: endpoint.addresses.to_vec(),
            state,
            weight: endpoint.weight,
            health: match endpoint.health {
                EndpointHealth::Unknown => None,
                known => Some(known.to_string()),
            },
            hostname: endpoint.hostname().map(ToString::to_string),
            proxy: endpoint.proxy().map(|proxy| **proxy),
            security_id: endpoint.security.as_deref().map_or(0, Security::id),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(error: &str) -> PolicyView {
        PolicyView {
            state: ConnectivityState::TransientFailure,
            error: Some(error.into()),
            resolution_note: Some("no zone".into()),
            ..PolicyView::default()
        }
    }

    fn changed(seconds: u64, reason: &str) -> Option<StateChange> {
        let age = Duration::from_secs(seconds);
        Some(StateChange { age, from: ConnectivityState::Connecting, reason: reason.into() })
    }

    #[test]
    fn an_error_is_kept_at_the_deepest_node_only() {
        let refused = EndpointView { error: Some("a: refused".into()), ..EndpointView::default() };
        let endpoints = vec![refused.clone(), EndpointView { error: Some("b: reset".into()), ..refused }];
        let leaf = PolicyView { endpoints, ..failing("all failing; last error: b: reset (no zone)") };
        let other = failing("it has no localities (no zone)");
        let mut root = failing("all failing; last error: b: reset (no zone)");
        root.children = vec![ChildPolicyView::new("x", leaf), ChildPolicyView::new("y", other)];
        root.say_errors_once();
        let mut said = Vec::new();
        root.walk(&mut |node| said.extend([&node.error, &node.resolution_note].into_iter().flatten()));
        // The note is part of the error of the node without endpoints.
        assert_eq!(said, ["no zone", "it has no localities (no zone)"]);
        assert_eq!(root.children[0].node.endpoints.len(), 2);
    }

    #[test]
    fn a_reason_comes_from_the_child_that_knows_it() {
        let child = PolicyView { changed: changed(3, "failed over from eu"), ..PolicyView::default() };
        let mut node = PolicyView::above(Some(child.clone()));
        node.set_changed(changed(9, "connected"));
        assert_eq!(node.changed, child.changed);
        // Not if the child is in a different state, or changed earlier.
        node.changed = None;
        node.state = ConnectivityState::Ready;
        node.set_changed(changed(9, "connected"));
        assert_eq!(node.changed, changed(9, "connected"));
        let mut node = PolicyView::above(Some(child));
        node.set_changed(changed(1, "new configuration"));
        assert_eq!(node.changed, changed(1, "new configuration"));
    }

    #[test]
    fn json_goes_there_and_back() {
        let mut node = failing("x");
        node.config.insert("b", 1);
        node.config.insert("a", 2);
        let child = PolicyView { changed: changed(3, "connected"), ..failing("y") };
        let node = PolicyView { children: vec![ChildPolicyView::new("c", child)], ..node };
        let text = serde_json::to_string(&node).unwrap();
        assert!(text.contains(r#""state":"TRANSIENT_FAILURE""#), "{text}");
        assert!(text.contains(r#""seconds_ago":3.0"#), "{text}");
        assert_eq!(serde_json::from_str::<PolicyView>(&text).unwrap(), node);
    }
}
