//! The tree as people look at it: a snapshot of every policy, made only when someone asks.

use std::collections::BTreeMap;
use std::fmt;
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
    /// What it fails RPCs with, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What went wrong on the way to its endpoints.
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
    /// What it is to its parent: `serving`, `standby`, `deactivated`.
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

impl fmt::Display for PolicyNode {
    /// The tree as indented lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line(f)?;
        writeln!(f)?;
        self.below(f, "")
    }
}

impl PolicyNode {
    /// Itself, without those below it.
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.policy, self.state)?;
        if let Some(StateChange { seconds_ago, from, why }) = &self.changed {
            write!(f, " for {seconds_ago:.0} s (from {from} by {why})")?;
        }
        for (name, value) in &self.config {
            write!(f, " {name}={value}")?;
        }
        for (name, value) in &self.counters {
            write!(f, " {name}={value}")?;
        }
        for (label, text) in [("error", &self.error), ("note", &self.resolution_note)] {
            if let Some(text) = text {
                write!(f, " {label}: {text}")?;
            }
        }
        Ok(())
    }

    fn below(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        let count = self.children.len() + self.endpoints.len();
        for (at, detail) in self.details.iter().enumerate() {
            let branch = if count == 0 && at + 1 == self.details.len() { "└·" } else { "├·" };
            writeln!(f, "{indent}{branch} {detail}")?;
        }
        let branch = |at: usize| if at + 1 == count { ("└─", "  ") } else { ("├─", "│ ") };
        for (at, child) in self.children.iter().enumerate() {
            let (branch, more) = branch(at);
            write!(f, "{indent}{branch} {child}")?;
            writeln!(f)?;
            child.node.below(f, &format!("{indent}{more} "))?;
        }
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            let (branch, _) = branch(self.children.len() + at);
            writeln!(f, "{indent}{branch} {endpoint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ChildNode {
    /// One line, without those below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        self.node.line(f)?;
        if let Some(weight) = self.weight {
            write!(f, " weight={weight}")?;
        }
        if let Some(role) = &self.role {
            write!(f, " [{role}]")?;
        }
        Ok(())
    }
}

impl fmt::Display for EndpointNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
        }
        write!(f, " {} ok={} failed={}", self.state, self.calls.succeeded, self.calls.failed)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        for text in [&self.health, &self.hostname].into_iter().flatten() {
            write!(f, " {text}")?;
        }
        match &self.error {
            Some(error) => write!(f, " error: {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> PolicyNode {
        let endpoint = EndpointNode {
            addresses: vec!["127.0.0.1:1".parse().unwrap()],
            state: ConnectivityState::Ready,
            weight: 1,
            calls: CallCounts { succeeded: 3, failed: 1 },
            ..EndpointNode::default()
        };
        let failed = EndpointNode {
            addresses: vec!["127.0.0.1:2".parse().unwrap(), "[::1]:2".parse().unwrap()],
            state: ConnectivityState::TransientFailure,
            weight: 5,
            error: Some("refused".into()),
            ..EndpointNode::default()
        };
        let leaf = PolicyNode {
            policy: "round_robin".into(),
            state: ConnectivityState::Ready,
            endpoints: vec![endpoint, failed],
            ..PolicyNode::default()
        };
        let zone =
            ChildNode { weight: Some(2), role: Some("serving".into()), ..ChildNode::new("zone", leaf) };
        PolicyNode {
            policy: "weighted_target".into(),
            state: ConnectivityState::Ready,
            resolution_note: Some("half is missing".into()),
            details: vec![Detail::new("load", "zone").with("issued", 4)],
            children: vec![zone],
            ..PolicyNode::default()
        }
    }

    #[test]
    fn the_drawing_has_every_name_state_and_reason() {
        let lines = [
            "weighted_target READY note: half is missing",
            "├· load zone issued=4",
            "└─ zone: round_robin READY weight=2 [serving]",
            "   ├─ 127.0.0.1:1 READY ok=3 failed=1",
            "   └─ 127.0.0.1:2,[::1]:2 TRANSIENT_FAILURE ok=0 failed=0 weight=5 error: refused",
        ];
        assert_eq!(tree().to_string().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn json_goes_there_and_back() {
        let text = serde_json::to_string(&tree()).unwrap();
        assert!(text.contains(r#""state":"READY""#), "{text}");
        assert_eq!(serde_json::from_str::<PolicyNode>(&text).unwrap(), tree());
    }
}
