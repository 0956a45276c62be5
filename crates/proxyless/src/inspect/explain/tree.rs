//! The decisions of the policies, read from the description of the tree: from a cluster down to an endpoint.

use std::net::SocketAddr;

use proxyless_balancer::api::{ChildPolicyView, ConnectivityState, Detail, EndpointView, PolicyView};

use super::{Candidate, CircuitBreakerView, Decision, DecisionLevel, DropView, Explanation};

/// The result of the pick, as far as the tree can explain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The policies picked this address.
    ByPolicies(SocketAddr),
    /// The session cookie names this address.
    BySession(SocketAddr),
    /// No endpoint was picked.
    Nothing,
}

impl Picked {
    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::ByPolicies(address) | Self::BySession(address) => Some(address),
            Self::Nothing => None,
        }
    }
}

/// Appends the decisions below the cluster's policy `node`.
pub(crate) fn describe_tree(explanation: &mut Explanation, cluster: &str, node: &PolicyView, picked: Picked) {
    Walk { picked, ejected: Vec::new(), explanation }.visit(node, cluster);
}

struct Walk<'a> {
    picked: Picked,
    /// The ejected endpoints, by their addresses, with the reasons.
    ejected: Vec<(String, String)>,
    explanation: &'a mut Explanation,
}

impl Walk<'_> {
    fn visit(&mut self, node: &PolicyView, of: &str) {
        match node.policy.as_str() {
            "priority_experimental" => return self.priorities(node, of),
            "weighted_target_experimental" => return self.localities(node, of),
            "outlier_detection_experimental" => self.note_ejections(node),
            "xds_cluster_impl_experimental" => self.note_limits(node),
            _ => {}
        }
        if !node.endpoints.is_empty() {
            return self.endpoints(node, of);
        }
        match &node.children[..] {
            [] => {}
            [only] => self.visit(&only.node, of),
            several => {
                let way = several.iter().find(|child| self.leads_to_pick(&child.node));
                way.into_iter().for_each(|child| self.visit(&child.node, &child.name));
            }
        }
    }

    fn leads_to_pick(&self, node: &PolicyView) -> bool {
        self.picked.address().is_some_and(|address| has_endpoint(node, address))
    }

    fn priorities(&mut self, node: &PolicyView, of: &str) {
        let is_serving =
            |child: &ChildPolicyView| matches!(child.role.as_deref(), Some("serving" | "failing"));
        let serving = node.children.iter().position(is_serving);
        let chosen = match self.picked {
            Picked::BySession(_) => {
                let on_the_way = |&place: &usize| {
                    node.children.get(place).is_some_and(|child| self.leads_to_pick(&child.node))
                };
                let found = || node.children.iter().position(|child| self.leads_to_pick(&child.node));
                serving.filter(on_the_way).or_else(found).or(serving)
            }
            Picked::ByPolicies(_) | Picked::Nothing => serving,
        };
        let level = match node.children.first().map(|child| child.node.policy.as_str()) {
            Some("cds_experimental") => DecisionLevel::LeafCluster,
            _ => DecisionLevel::Priority,
        };
        let ranks = Ranks { node, chosen, serving };
        let candidates = node.children.iter().enumerate().map(|(place, child)| Candidate {
            state: Some(child.node.state).filter(|_| child.role.as_deref() != Some("not created")),
            ..Candidate::new(&child.name, chosen == Some(place), ranks.why(place, child))
        });
        let candidates = candidates.collect();
        self.decide(level, of, node, candidates);
        let below = chosen.and_then(|chosen| node.children.get(chosen));
        if let Some(child) = below {
            let of = match level {
                DecisionLevel::LeafCluster => child.name.clone(),
                _ => format!("{} of {of}", child.name),
            };
            self.visit(&child.node, &of);
        }
    }

    fn localities(&mut self, node: &PolicyView, of: &str) {
        // Picks go to the children in the best state that there is.
        let takes_picks = |child: &&ChildPolicyView| child.node.state == node.state;
        let weight = |child: &ChildPolicyView| u64::from(child.weight.unwrap_or(0));
        let total: u64 = node.children.iter().filter(takes_picks).map(weight).sum();
        let way = node.children.iter().position(|child| self.leads_to_pick(&child.node));
        let candidates = node.children.iter().enumerate().map(|(place, child)| {
            let share = share(weight(child), total);
            let why = match (way == Some(place), child.node.state) {
                (true, _) if matches!(self.picked, Picked::BySession(_)) => {
                    "the endpoint of the session is here".to_owned()
                }
                (true, ConnectivityState::Ready) => format!("drawn by weight: {share} of RPCs go here"),
                (false, ConnectivityState::Ready) => format!("{share} of RPCs go here, but not this one"),
                (_, ConnectivityState::TransientFailure) => format!("failed{}", cause(&child.node)),
                (_, ConnectivityState::Connecting) => "still connecting".to_owned(),
                (_, ConnectivityState::Idle) => "not connected".to_owned(),
            };
            let (state, weight) = (Some(child.node.state), child.weight);
            Candidate { state, weight, ..Candidate::new(&child.name, way == Some(place), why) }
        });
        let candidates = candidates.collect();
        self.decide(DecisionLevel::Locality, of, node, candidates);
        match way.and_then(|way| node.children.get(way)) {
            Some(child) => self.visit(&child.node, &child.name),
            // Without a pick, each locality shows why.
            None => node.children.iter().for_each(|child| self.visit(&child.node, &child.name)),
        }
    }

    fn endpoints(&mut self, node: &PolicyView, of: &str) {
        let candidates = node.endpoints.iter().map(|endpoint| {
            let chosen = self.picked.address().is_some_and(|picked| endpoint.addresses.contains(&picked));
            let name = addresses(endpoint);
            let why = self.why_endpoint(plain(&node.policy), endpoint, &name, chosen);
            let why = match &endpoint.health {
                Some(health) => format!("{why} (health {health})"),
                None => why,
            };
            let weight = Some(endpoint.weight).filter(|&weight| weight != 1);
            Candidate { state: Some(endpoint.state), weight, ..Candidate::new(name, chosen, why) }
        });
        let candidates = candidates.collect();
        self.decide(DecisionLevel::Endpoint, of, node, candidates);
    }

    fn why_endpoint(&self, policy: &str, endpoint: &EndpointView, name: &str, chosen: bool) -> String {
        if chosen {
            return match (self.picked, policy) {
                (Picked::BySession(_), _) => "the session cookie names it",
                (_, "round_robin") => "READY, and its turn",
                (_, "weighted_round_robin") => "READY, and its turn by weight",
                (_, "ring_hash") => "the first usable one on the ring for the hash of the request",
                (_, "least_request") => "the fewest requests in flight among those drawn",
                (_, "pick_first") => "the first that connected",
                _ => "picked",
            }
            .to_owned();
        }
        if let Some((_, why)) = self.ejected.iter().find(|(ejected, _)| is_same(ejected, endpoint)) {
            return why.clone();
        }
        match endpoint.state {
            ConnectivityState::TransientFailure => match &endpoint.error {
                Some(error) => format!("failed: {}", without_address(error, name)),
                None => "failed".to_owned(),
            },
            ConnectivityState::Connecting => "still connecting".to_owned(),
            ConnectivityState::Idle => "not connected".to_owned(),
            ConnectivityState::Ready => match (self.picked, policy) {
                (Picked::BySession(_), _) => "the session cookie does not name it",
                (Picked::Nothing, _) => "READY, but the RPC does not get here",
                (_, "round_robin" | "weighted_round_robin") => "READY; it was not its turn",
                (_, "ring_hash") => "READY; another one comes first on the ring for this hash",
                (_, "least_request") => "READY; not drawn, or with more requests in flight",
                _ => "READY; not picked",
            }
            .to_owned(),
        }
    }

    fn note_ejections(&mut self, node: &PolicyView) {
        for detail in node.details.iter().filter(|detail| detail.kind == "ejected") {
            let number = |name| detail.fields.get(name).and_then(|value| value.as_f64()).unwrap_or_default();
            let why = format!(
                "ejected by outlier detection for {:.1} s more: {} of {} RPCs failed",
                number("ends_in_seconds"),
                number("failed"),
                number("calls")
            );
            self.ejected.push((detail.subject.clone(), why));
        }
    }

    fn note_limits(&mut self, node: &PolicyView) {
        let text = |name: &str| node.config[name].as_str().unwrap_or_default().to_owned();
        self.explanation.circuit_breaker = Some(CircuitBreakerView {
            cluster: text("cluster"),
            in_flight: node.counters.get("requests_in_flight").copied().unwrap_or_default(),
            max_requests: node.config["maxConcurrentRequests"].as_u64().unwrap_or_default(),
        });
        let drops = node.config["dropCategories"].as_array().into_iter().flatten();
        self.explanation.drops = drops
            .map(|drop| DropView {
                category: drop["category"].as_str().unwrap_or_default().to_owned(),
                per_million: drop["requestsPerMillion"].as_u64().unwrap_or_default(),
            })
            .collect();
    }

    fn decide(&mut self, level: DecisionLevel, of: &str, node: &PolicyView, candidates: Vec<Candidate>) {
        let (of, by) = (of.to_owned(), plain(&node.policy).to_owned());
        self.explanation.decisions.push(Decision { level, of, by, candidates, left_out: 0 });
    }
}

/// The children of a priority policy, in order.
struct Ranks<'a> {
    node: &'a PolicyView,
    chosen: Option<usize>,
    /// Where RPCs without a session go.
    serving: Option<usize>,
}

impl Ranks<'_> {
    fn why(&self, place: usize, child: &ChildPolicyView) -> String {
        if self.chosen == Some(place) {
            return self.why_chosen(place, child);
        }
        let is_above = self.chosen.is_none_or(|chosen| place < chosen);
        match (child.node.state, child.role.as_deref()) {
            (_, Some("not created")) => "not needed so far, so it does not exist yet".to_owned(),
            (_, Some("deactivated")) => "not needed while a higher one is usable".to_owned(),
            (ConnectivityState::TransientFailure, _) => format!("failed{}", cause(&child.node)),
            (ConnectivityState::Connecting, _) => match self.timer(&child.name) {
                Some(left) => format!("connecting; its failover timer ends in {left:.1} s"),
                None => "still connecting after its failover timer ran out".to_owned(),
            },
            (_, _) if self.serving == Some(place) => {
                "serves RPCs without a session, but the session's endpoint is elsewhere".to_owned()
            }
            (_, _) if is_above => "usable, but not chosen".to_owned(),
            (_, _) => "not needed while a higher one is usable".to_owned(),
        }
    }

    fn why_chosen(&self, place: usize, child: &ChildPolicyView) -> String {
        if self.serving != Some(place) {
            return "the endpoint of the session is here".to_owned();
        }
        let above = self.node.children.get(..place).unwrap_or_default();
        let waited_for = above.iter().find_map(|child| Some((&child.name, self.timer(&child.name)?)));
        match (child.node.state, waited_for) {
            (ConnectivityState::Ready, Some((above, left))) => format!(
                "served before the last update, and continues until {above} is READY, has failed, or its failover \
                 timer ends in {left:.1} s"
            ),
            (ConnectivityState::Ready, None) if place == 0 => "READY, and the first in order".to_owned(),
            (ConnectivityState::Ready, None) => {
                let since = self
                    .node
                    .changed
                    .as_ref()
                    .map(|change| format!(" ({} {:.1} s ago)", change.reason, change.age.as_secs_f64()));
                format!("the first in order that is READY{}", since.unwrap_or_default())
            }
            (ConnectivityState::Idle, _) => {
                "the first in order that is usable; the next RPC makes it connect".to_owned()
            }
            (ConnectivityState::Connecting, _) => match self.timer(&child.name) {
                Some(left) => format!(
                    "connecting: RPCs wait until it is READY or has failed, or its failover timer ends in {left:.1} s"
                ),
                None => "none is READY, and it is the first that is still connecting: RPCs wait".to_owned(),
            },
            (ConnectivityState::TransientFailure, _) => {
                format!("all have failed, and RPCs get the error of this one{}", cause(&child.node))
            }
        }
    }

    /// The seconds until the failover timer of a child runs out.
    fn timer(&self, child: &str) -> Option<f64> {
        let timer = |detail: &&Detail| detail.kind == "failover timer" && detail.subject == child;
        let detail = self.node.details.iter().find(timer)?;
        detail.fields.get("ends_in_seconds").and_then(|value| value.as_f64())
    }
}

/// Whether the endpoint of this address is below the policy.
fn has_endpoint(node: &PolicyView, address: SocketAddr) -> bool {
    node.endpoints.iter().any(|endpoint| endpoint.addresses.contains(&address))
        || node.children.iter().any(|child| has_endpoint(&child.node, address))
}

/// The cause of a policy's failure, after a colon; empty if it is not known.
fn cause(node: &PolicyView) -> String {
    let own = || node.changed.as_ref().map(|change| change.reason.as_str());
    deepest_error(node).or_else(own).map(|why| format!(": {why}")).unwrap_or_default()
}

/// The first error of the policy, its endpoints or its descendants.
fn deepest_error(node: &PolicyView) -> Option<&str> {
    let of_endpoints = || node.endpoints.iter().find_map(|endpoint| endpoint.error.as_deref());
    let below = || node.children.iter().find_map(|child| deepest_error(&child.node));
    node.error.as_deref().or_else(of_endpoints).or_else(below)
}

fn addresses(endpoint: &EndpointView) -> String {
    endpoint.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Whether a list of addresses, in any order, is that of the endpoint.
fn is_same(list: &str, endpoint: &EndpointView) -> bool {
    let mut listed: Vec<_> = list.split(',').map(str::to_owned).collect();
    let mut own: Vec<_> = endpoint.addresses.iter().map(ToString::to_string).collect();
    listed.sort_unstable();
    own.sort_unstable();
    listed == own
}

/// An error without the address at its beginning, which is shown beside it.
fn without_address<'a>(error: &'a str, address: &str) -> &'a str {
    let rest = error.strip_prefix("ipv4:").or_else(|| error.strip_prefix("ipv6:")).unwrap_or(error);
    rest.strip_prefix(address).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(error)
}

/// The name of a policy without its suffix.
fn plain(policy: &str) -> &str {
    policy.strip_suffix("_experimental").unwrap_or(policy)
}

/// A share as text.
pub(crate) fn share(weight: u64, total: u64) -> String {
    let percent = if total == 0 { 0.0 } else { weight as f64 * 100.0 / total as f64 };
    format!("{} %", (percent * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_loses_the_address_that_is_shown_beside_it() {
        assert_eq!(without_address("ipv4:1.2.3.4:5: refused", "1.2.3.4:5"), "refused");
        assert_eq!(without_address("ipv6:[::1]:5: refused", "[::1]:5"), "refused");
        assert_eq!(without_address("1.2.3.4:5: refused", "1.2.3.4:5"), "refused");
        assert_eq!(without_address("ipv4:1.2.3.4:6: refused", "1.2.3.4:5"), "ipv4:1.2.3.4:6: refused");
    }
}
