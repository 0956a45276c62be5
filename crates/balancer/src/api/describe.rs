//! The tree as people look at it: a snapshot of every policy, made only when someone asks.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{CallCounts, ConnectivityState, Detail, Endpoint, Fields, HealthStatus};

/// One policy of the tree, with all below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyNode {
    /// The policy's name.
    pub policy: String,
    /// The state that it published.
    pub state: ConnectivityState,
    /// How it got into that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<StateChange>,
    /// Its configuration, by the names that gRFCs give the fields; the children's is with the children.
    #[serde(skip_serializing_if = "Fields::is_empty")]
    pub config: Fields,
    /// What it fails RPCs with, unless something below it says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong on the way to its endpoints, unless an error says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_note: Option<String>,
    /// What it counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// What it does about single endpoints, localities or sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// The policies below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildNode>,
    /// The endpoints that it picks among, if it is one that does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<EndpointNode>,
}

/// A policy among the children of another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildNode {
    /// What its parent calls it: a cluster, a priority, a locality. Empty for an only child.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its share of the RPCs, where the parent has weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What it is to its parent: `serving`, `failing` (RPCs fail with its error), `standby`, `deactivated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The policy.
    #[serde(flatten)]
    pub node: PolicyNode,
}

/// The last change of a policy's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateChange {
    /// How long ago.
    pub seconds_ago: f64,
    /// The state before.
    pub from: ConnectivityState,
    /// What made it change.
    pub why: String,
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointNode {
    /// Its addresses, in the order of preference.
    pub addresses: Vec<SocketAddr>,
    /// Its state, as its policy counts it.
    pub state: ConnectivityState,
    /// The address that it is connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connected: Option<SocketAddr>,
    /// Its weight.
    pub weight: u32,
    /// The health that the control plane gave it, unless that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Its host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Why it is not to be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The calls that ended on its connections.
    pub calls: CallCounts,
}

impl PolicyNode {
    /// A node with one child.
    #[must_use]
    pub fn above(child: Option<Self>) -> Self {
        let children = child.into_iter().map(|node| ChildNode::new("", node)).collect();
        Self { children, ..Self::default() }
    }

    /// Sets how it got into its state; what its only child says of the same state counts if it is more recent.
    pub(super) fn set_changed(&mut self, own: Option<StateChange>) {
        let below = match &self.children[..] {
            [only] if only.name.is_empty() && only.node.state == self.state => only.node.changed.as_ref(),
            _ => None,
        };
        let known = [self.changed.take(), below.cloned(), own];
        let latest = |a: &StateChange, b: &StateChange| a.seconds_ago.total_cmp(&b.seconds_ago);
        self.changed = known.into_iter().flatten().min_by(latest);
    }

    /// Leaves errors and notes to the deepest node or endpoint that has them: those above only repeat them.
    pub fn say_errors_once(&mut self) {
        self.say_once(&mut Vec::new());
    }

    /// Adds what it and those below it say to `said`.
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

    /// The policies below it and itself, parents first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        self.children.iter().for_each(|child| child.node.walk(visit));
    }
}

impl ChildNode {
    /// A child without weight and role.
    #[must_use]
    pub fn new(name: impl Into<String>, node: PolicyNode) -> Self {
        Self { name: name.into(), weight: None, role: None, node }
    }
}

impl EndpointNode {
    /// What is known of an endpoint without asking its connections.
    #[must_use]
    pub fn new(endpoint: &Endpoint, state: ConnectivityState) -> Self {
        Self {
            addresses: endpoint.addresses.to_vec(),
            state,
            weight: endpoint.weight,
            health: match endpoint.health {
                HealthStatus::Unknown => None,
                HealthStatus::Healthy => Some("HEALTHY".into()),
                HealthStatus::Draining => Some("DRAINING".into()),
            },
            hostname: endpoint.hostname.as_deref().map(str::to_owned),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(error: &str) -> PolicyNode {
        PolicyNode {
            state: ConnectivityState::TransientFailure,
            error: Some(error.into()),
            resolution_note: Some("no zone".into()),
            ..PolicyNode::default()
        }
    }

    fn changed(seconds_ago: f64, why: &str) -> Option<StateChange> {
        Some(StateChange { seconds_ago, from: ConnectivityState::Connecting, why: why.into() })
    }

    #[test]
    fn an_error_is_kept_at_the_deepest_node_only() {
        let refused = EndpointNode { error: Some("a: refused".into()), ..EndpointNode::default() };
        let endpoints = vec![refused.clone(), EndpointNode { error: Some("b: reset".into()), ..refused }];
        let leaf = PolicyNode { endpoints, ..failing("all failing; last error: b: reset (no zone)") };
        let other = failing("it has no localities (no zone)");
        let mut root = failing("all failing; last error: b: reset (no zone)");
        root.children = vec![ChildNode::new("x", leaf), ChildNode::new("y", other)];
        root.say_errors_once();
        let mut said = Vec::new();
        root.walk(&mut |node| said.extend([&node.error, &node.resolution_note].into_iter().flatten()));
        // The note is part of the error of the node that has no endpoints to blame.
        assert_eq!(said, ["no zone", "it has no localities (no zone)"]);
        assert_eq!(root.children[0].node.endpoints.len(), 2);
    }

    #[test]
    fn a_reason_comes_from_the_child_that_knows_it() {
        let child = PolicyNode { changed: changed(3.0, "failed over from eu"), ..PolicyNode::default() };
        let mut node = PolicyNode::above(Some(child.clone()));
        node.set_changed(changed(9.0, "connected"));
        assert_eq!(node.changed, child.changed);
        // Not if the child is in another state, or changed before.
        node.changed = None;
        node.state = ConnectivityState::Ready;
        node.set_changed(changed(9.0, "connected"));
        assert_eq!(node.changed, changed(9.0, "connected"));
        let mut node = PolicyNode::above(Some(child));
        node.set_changed(changed(1.0, "new configuration"));
        assert_eq!(node.changed, changed(1.0, "new configuration"));
    }

    #[test]
    fn json_goes_there_and_back() {
        let mut node = failing("x");
        node.config.insert("b", 1);
        node.config.insert("a", 2);
        let node = PolicyNode { children: vec![ChildNode::new("c", failing("y"))], ..node };
        let text = serde_json::to_string(&node).unwrap();
        assert!(text.contains(r#""state":"TRANSIENT_FAILURE""#), "{text}");
        assert_eq!(serde_json::from_str::<PolicyNode>(&text).unwrap(), node);
    }
}
