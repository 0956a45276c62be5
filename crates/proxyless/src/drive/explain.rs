//! Explains a call, for inspection: routes and picks as an RPC would, without sending anything.

use proxyless_balancer::api::{CallAttributes, PickArgs, PickError, PickPurpose, PickResult};
use proxyless_mesh::channel_core::{DataPlane, RouteView, TreeView};
use proxyless_mesh::cluster_claim::ClusterClaim;
use proxyless_mesh::route_table::{RouteTable, Selection};
use proxyless_mesh::virtual_host::{MatchingHost, matching_hosts};
use proxyless_mesh::xds_config::XdsConfig;
use proxyless_sans_io::Rng;
use proxyless_xds::resource::RetryPolicy;

use super::channel::ChannelDriver;
use super::supervisor::Parts;
use crate::call::{PolicyRetries, attributes};
use crate::clock;
use crate::filters::Session;
use crate::inspect::explain::{Picked, describe_tree, share};
use crate::inspect::{Candidate, Decision, DecisionLevel, ExplainRequest, Explanation, Outcome, RetryView};

/// The explanation of a call on a channel that has no driver, and fails all calls with this error.
pub(super) fn failing(parts: &Parts, request: &ExplainRequest, error: &PickError) -> Explanation {
    let tree = TreeView::failing(&parts.config.listener_name, error.message.clone());
    Explanation { outcome: fails(error), ..start(parts, request, &tree) }
}

impl ChannelDriver {
    /// Explains a call. Between two events the core and the published snapshot agree.
    pub(super) fn explain(&mut self, request: &ExplainRequest) -> Explanation {
        let tree = self.core.describe(clock::now());
        let mut explanation = start(&self.parts, request, &tree);
        let snapshot = self.parts.published.load();
        match (&snapshot.data, self.core.config()) {
            (Some(data), Some(xds)) => {
                let case = Case { parts: &self.parts, request, tree: &tree, data };
                case.explain(xds, &mut explanation);
            }
            (Some(DataPlane { routes: Err(error), .. }), _) => explanation.outcome = fails(error),
            _ => explanation.outcome = Outcome::Waits { why: self.why_no_config() },
        }
        explanation
    }

    fn why_no_config(&self) -> String {
        match self.core.is_idle() {
            true => {
                "the channel is IDLE: the next RPC requests its configuration, and waits for it".to_owned()
            }
            false => format!("there is no configuration yet{}", self.parts.published.missing),
        }
    }
}

/// An explanation without decisions.
fn start(parts: &Parts, request: &ExplainRequest, tree: &TreeView) -> Explanation {
    Explanation {
        channel: parts.id,
        target: parts.target.as_ref().to_owned(),
        path: request.path.clone(),
        state: tree.state,
        listener: tree.listener.clone(),
        route_config: None,
        decisions: Vec::new(),
        filters: Vec::new(),
        timeout_seconds: None,
        retry: None,
        circuit_breaker: None,
        drops: Vec::new(),
        outcome: Outcome::Waits { why: String::new() },
    }
}

fn fails(error: &PickError) -> Outcome {
    Outcome::Fails { code: error.code.to_string(), message: error.message.clone() }
}

/// A call on a channel that has a configuration.
struct Case<'a> {
    parts: &'a Parts,
    request: &'a ExplainRequest,
    tree: &'a TreeView,
    data: &'a DataPlane,
}

impl Case<'_> {
    fn explain(&self, xds: &XdsConfig, explanation: &mut Explanation) {
        let rng = &mut clock::rng();
        explanation.route_config = xds.route_config_name().map(|name| name.as_ref().to_owned());
        explanation.decisions.push(virtual_host(xds, &self.parts.config.authority));
        match &self.data.routes {
            Ok(routes) => self.route(routes, rng, explanation),
            Err(error) => explanation.outcome = fails(error),
        }
    }

    fn route(&self, routes: &RouteTable, rng: &mut Rng, explanation: &mut Explanation) {
        let ExplainRequest { path, headers, .. } = self.request;
        let (verdicts, selected) = routes.explain(path, headers, rng);
        let considered = self.tree.routes.iter().zip(&verdicts).enumerate();
        let candidates = considered.map(|(place, (route, verdict))| {
            Candidate::new(route_name(place, route), verdict.matched, &verdict.why)
        });
        explanation.decisions.push(Decision {
            level: DecisionLevel::Route,
            of: String::new(),
            by: "the first match".to_owned(),
            candidates: candidates.collect(),
            left_out: self.tree.routes.len().saturating_sub(verdicts.len()),
        });
        let selection = match selected {
            Ok(selection) => selection,
            Err(error) => return explanation.outcome = fails(&error.into()),
        };
        let route = verdicts.len().checked_sub(1).and_then(|place| self.tree.routes.get(place));
        self.settings(&selection, explanation);
        let session = Session::begin(&selection, path, headers);
        let cluster: &ClusterClaim = match &session {
            Some(session) => session.cluster(),
            None => selection.cluster,
        };
        explanation.decisions.extend(route.map(|route| self.cluster(route, &selection, cluster.name())));
        let attributes = attributes(&selection, cluster, headers, self.parts.hash, rng);
        let (outcome, picked) = self.pick(attributes, session.as_ref(), rng);
        if let Some(session) = &session {
            explanation.filters.push(session_effect(session));
            explanation.decisions.extend(session_decision(session, picked));
        }
        let faults = selection.faults.iter().map(|filter| format!("{filter}"));
        explanation.filters.extend(faults);
        explanation.outcome = outcome;
        let policy = self.tree.root.iter().flat_map(|root| &root.children);
        if let Some(policy) = policy.into_iter().find(|child| *child.name == **cluster.name()) {
            describe_tree(explanation, cluster.name(), &policy.node, picked);
        }
    }

    fn settings(&self, selection: &Selection<'_>, explanation: &mut Explanation) {
        explanation.timeout_seconds = selection.route.max_stream_duration.map(|limit| limit.as_secs_f64());
        let policy = selection.route.retry_policy.as_deref();
        explanation.retry =
            policy.filter(|_| self.parts.policy_retries == PolicyRetries::Enabled).map(retry_view);
    }

    fn cluster(&self, route: &RouteView, selection: &Selection<'_>, chosen: &str) -> Decision {
        let total = route.clusters.iter().map(|share| u64::from(share.weight)).sum();
        let only = route.clusters.len() == 1;
        let by_session = chosen != &**selection.cluster.name();
        let state_of = |name: &str| {
            let clusters = self.tree.root.iter().flat_map(|root| &root.children);
            clusters.into_iter().find(|child| child.name == name).map(|child| child.node.state)
        };
        let candidates = route.clusters.iter().map(|listed| {
            let part = share(listed.weight.into(), total);
            let is_chosen = listed.cluster == chosen;
            let why = match (is_chosen, by_session) {
                (true, true) => "the session cookie names it".to_owned(),
                (true, false) if only => "the only cluster of the route".to_owned(),
                (true, false) => format!("drawn by weight: {part} of RPCs go here"),
                (false, true) => format!("{part} of RPCs without a session go here"),
                (false, false) => format!("{part} of RPCs go here, but not this one"),
            };
            let weight = Some(listed.weight).filter(|_| !only);
            Candidate {
                state: state_of(&listed.cluster),
                weight,
                ..Candidate::new(&listed.cluster, is_chosen, why)
            }
        });
        let by = if by_session { "the session cookie" } else { "weight" };
        Decision {
            level: DecisionLevel::Cluster,
            of: String::new(),
            by: if only { "the route" } else { by }.to_owned(),
            candidates: candidates.collect(),
            left_out: 0,
        }
    }

    fn pick(
        &self,
        attributes: CallAttributes,
        session: Option<&Session>,
        rng: &mut Rng,
    ) -> (Outcome, Picked) {
        let ExplainRequest { path, headers, .. } = self.request;
        let override_host = session.map(|session| session.override_host(clock::now(), None));
        let attributes = CallAttributes { override_host, purpose: PickPurpose::Explanation, ..attributes };
        let mut args = PickArgs { path, headers, attributes, rng };
        match self.data.picker.pick(&mut args) {
            PickResult::Complete(pick) => {
                let address = pick.target.address;
                let named = session.is_some_and(|session| session.addresses().contains(&address));
                let picked = if named { Picked::BySession(address) } else { Picked::ByPolicies(address) };
                match pick.target.slot.is_connected() {
                    true => (Outcome::Endpoint { address }, picked),
                    false => {
                        let why = format!("the connection to {address} was just lost");
                        (Outcome::Waits { why }, picked)
                    }
                }
            }
            PickResult::Queue => {
                let why = match self.parts.published.connecting.is_empty() {
                    true => "the policies have no READY endpoint for it yet".to_owned(),
                    false => {
                        format!(
                            "the policies have no READY endpoint for it yet{}",
                            self.parts.published.connecting
                        )
                    }
                };
                (Outcome::Waits { why }, Picked::Nothing)
            }
            PickResult::Fail(error) => (fails(&error), Picked::Nothing),
            PickResult::Drop(error) => {
                let (code, message) = (error.code.to_string(), error.message.clone());
                (Outcome::Dropped { code, message }, Picked::Nothing)
            }
        }
    }
}

fn virtual_host(xds: &XdsConfig, authority: &str) -> Decision {
    let hosts = matching_hosts(&xds.route_config, authority);
    let left_out = xds.route_config.virtual_hosts.len().saturating_sub(hosts.len());
    let candidates = hosts.into_iter().map(|host| {
        let MatchingHost { name, domain, kind, chosen } = host;
        let why = match chosen {
            true => format!("its domain {domain:?} matches {kind}, {authority}"),
            false => {
                format!("its domain {domain:?} matches {kind}, but another is more specific or comes first")
            }
        };
        Candidate::new(name, chosen, why)
    });
    let by = "the most specific domain".to_owned();
    let level = DecisionLevel::VirtualHost;
    Decision { level, of: String::new(), by, candidates: candidates.collect(), left_out }
}

/// The name of a route, or its number, with its condition and clusters.
fn route_name(place: usize, route: &RouteView) -> String {
    match route.name.is_empty() {
        true => format!("{}: {route}", place + 1),
        false => format!("{} ({}): {route}", place + 1, route.name),
    }
}

fn retry_view(policy: &RetryPolicy) -> RetryView {
    RetryView {
        codes: policy.codes.iter().map(ToString::to_string).collect(),
        retries: policy.num_retries,
        base_interval_seconds: policy.base_interval.as_secs_f64(),
        max_interval_seconds: policy.max_interval.as_secs_f64(),
    }
}

/// The effect of the session filter.
fn session_effect(session: &Session) -> String {
    let name = session.cookie_name();
    match session.addresses() {
        [] => format!("stateful_session: the call has no valid cookie {name}: the response sets one"),
        addresses => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!("stateful_session: the cookie {name} names {}", addresses.join(", "))
        }
    }
}

/// The addresses of the cookie, if there are any.
fn session_decision(session: &Session, picked: Picked) -> Option<Decision> {
    let candidates = session.addresses().iter().map(|&address| match picked {
        Picked::BySession(chosen) if chosen == address => {
            Candidate::new(address.to_string(), true, "connected, and in the cookie")
        }
        Picked::BySession(_) => {
            Candidate::new(address.to_string(), false, "another address of the cookie is connected")
        }
        Picked::ByPolicies(_) | Picked::Nothing => {
            let why = "unknown, failed, or its health does not allow sessions, so the policies decide";
            Candidate::new(address.to_string(), false, why)
        }
    });
    let candidates: Vec<_> = candidates.collect();
    let by = "xds_override_host".to_owned();
    let decision = Decision { level: DecisionLevel::Session, of: String::new(), by, candidates, left_out: 0 };
    (!decision.candidates.is_empty()).then_some(decision)
}
