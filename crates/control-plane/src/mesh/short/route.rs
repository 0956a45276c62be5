//! Routes: their conditions, clusters, timeouts, retries and hashes.

use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3::retry_policy::RetryBackOff;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{
    FilterState, Header, PolicySpecifier,
};
use envoy_types::pb::envoy::config::route::v3::route_action::{HashPolicy, MaxStreamDuration};
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, RetryPolicy, Route};
use envoy_types::pb::google::protobuf::UInt32Value;
use proxyless_testkit::resources::{
    HeaderExt as _, RouteExt as _, duration, header, no_stateful_session, route as route_to, weighted_route,
};

use crate::file::node::{Node, Value};
use crate::file::problem::Problems;
use crate::file::read::{self, Fields};

const FIELDS: &[&str] = &[
    "name",
    "prefix",
    "path",
    "regex",
    "service",
    "ignore_case",
    "headers",
    "fraction",
    "cluster",
    "clusters",
    "timeout",
    "retry",
    "hash",
    "session",
    "host_rewrite",
];
const PATHS: &[&str] = &["prefix", "path", "regex", "service"];
const RETRY_CODES: &[(&str, &str)] = &[
    ("cancelled", "cancelled"),
    ("deadline-exceeded", "deadline-exceeded"),
    ("internal", "internal"),
    ("resource-exhausted", "resource-exhausted"),
    ("unavailable", "unavailable"),
];

pub(super) fn route(node: &Node, problems: &mut Problems) -> Option<Route> {
    let fields = Fields::of(node, "a route", FIELDS, problems)?;
    fields.at_most_one(PATHS, problems);
    fields.at_most_one(&["cluster", "clusters"], problems);
    let base = match (fields.get("cluster"), fields.get("clusters")) {
        (Some(node), _) => read::text(node, problems).map(route_to),
        (None, Some(node)) => weighted(node, problems),
        (None, None) => problems.fail(node.at, "a route needs cluster or clusters"),
    };
    // Continue after a problem: the other fields may have more.
    let mut route = base.clone().unwrap_or_default();
    if let Some(name) = fields.read("name", problems, read::text) {
        route.name = name.to_owned();
    }
    route = matching(route, &fields, problems);
    if let Some(timeout) = fields.read("timeout", problems, read::duration) {
        set_timeout(&mut route, timeout);
    }
    let retry = fields.read("retry", problems, retry);
    let hashes = fields.get("hash").map(|node| hashes(node, problems)).unwrap_or_default();
    if let Some(Action::Route(action)) = &mut route.action {
        (action.retry_policy, action.hash_policy) = (retry, hashes);
    }
    if fields
        .read("host_rewrite", problems, |node, problems| read::word(node, &[("auto", ())], problems))
        .is_some()
    {
        route = route.auto_host_rewrite();
    }
    if fields.read("session", problems, read::boolean) == Some(false) {
        route.typed_per_filter_config.insert("stateful_session".to_owned(), no_stateful_session());
    }
    base.map(|_| route)
}

fn matching(mut route: Route, fields: &Fields<'_>, problems: &mut Problems) -> Route {
    if let Some(prefix) = fields.read("prefix", problems, read::text) {
        route = route.prefix(prefix);
    }
    if let Some(path) = fields.read("path", problems, read::text) {
        route = route.path(path);
    }
    if let Some(regex) = fields.read("regex", problems, read::text) {
        route = route.regex(regex);
    }
    if let Some(service) = fields.read("service", problems, read::text) {
        route = route.prefix(&format!("/{}/", service.trim_matches('/')));
    }
    if fields.read("ignore_case", problems, read::boolean) == Some(true) {
        route = route.ignore_case();
    }
    if let Some(share) = fields.read("fraction", problems, read::percentage) {
        route = route.fraction(share);
    }
    if let Some(node) = fields.get("headers") {
        for item in read::list(node, "headers", problems).unwrap_or_default() {
            if let Some(matcher) = header_matcher(item, problems) {
                route = route.header(matcher);
            }
        }
    }
    route
}

fn header_matcher(node: &Node, problems: &mut Problems) -> Option<HeaderMatcher> {
    let conditions = ["exact", "prefix", "suffix", "contains", "regex", "range", "present"];
    let known: Vec<&str> = ["name", "invert"].into_iter().chain(conditions).collect();
    let fields = Fields::of(node, "a header", &known, problems)?;
    fields.at_most_one(&conditions, problems);
    let Some(name) = fields.get("name") else { return problems.fail(node.at, "a header needs a name") };
    let mut matcher = header(read::text(name, problems)?);
    if let Some(text) = fields.read("exact", problems, read::text) {
        matcher = matcher.exact(text);
    }
    if let Some(text) = fields.read("prefix", problems, read::text) {
        matcher = matcher.starts_with(text);
    }
    if let Some(text) = fields.read("suffix", problems, read::text) {
        matcher = matcher.ends_with(text);
    }
    if let Some(text) = fields.read("contains", problems, read::text) {
        matcher = matcher.contains(text);
    }
    if let Some(text) = fields.read("regex", problems, read::text) {
        matcher = HeaderMatcher::regex(matcher, text);
    }
    if let Some(node) = fields.get("range") {
        let bounds = read::list(node, "range", problems)?;
        let numbers: Vec<i64> = bounds.iter().filter_map(|bound| read::whole(bound, problems)).collect();
        match numbers[..] {
            [start, end] if bounds.len() == 2 => matcher = matcher.range(start..end),
            _ => return problems.fail(node.at, "a range is [START, END], without END itself"),
        }
    }
    if fields.read("present", problems, read::boolean) == Some(false) {
        matcher = matcher.absent();
    }
    if fields.read("invert", problems, read::boolean) == Some(true) {
        matcher = matcher.inverted();
    }
    Some(matcher)
}

/// `clusters: { v1: 90, v2: 10 }`.
fn weighted(node: &Node, problems: &mut Problems) -> Option<Route> {
    let entries = read::map(node, "clusters", problems)?;
    let weights: Option<Vec<(&str, u32)>> = entries
        .iter()
        .map(|entry| Some((entry.key.as_str(), read::whole(&entry.value, problems)?)))
        .collect();
    weights.map(weighted_route)
}

/// Limits the duration of the route's RPCs.
fn set_timeout(route: &mut Route, timeout: Duration) {
    if let Some(Action::Route(action)) = &mut route.action {
        let limit = Some(duration(timeout));
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: limit, ..Default::default() });
    }
}

pub(super) fn retry(node: &Node, problems: &mut Problems) -> Option<RetryPolicy> {
    let fields = Fields::of(node, "retry", &["on", "retries", "base_interval", "max_interval"], problems)?;
    let Some(on) = fields.get("on") else {
        let codes: Vec<&str> = RETRY_CODES.iter().map(|(code, _)| *code).collect();
        return problems.fail(node.at, format!("retry needs on: a list of {}", codes.join(", ")));
    };
    let codes: Option<Vec<&str>> = match &on.value {
        Value::List(items) => items.iter().map(|item| read::word(item, RETRY_CODES, problems)).collect(),
        _ => read::word(on, RETRY_CODES, problems).map(|code| vec![code]),
    };
    fields.needs("max_interval", "base_interval", problems);
    let base = fields.read("base_interval", problems, read::duration);
    let max = fields.read("max_interval", problems, read::duration);
    Some(RetryPolicy {
        retry_on: codes?.join(","),
        num_retries: fields.read("retries", problems, read::whole).map(|value| UInt32Value { value }),
        retry_back_off: base.map(|base| RetryBackOff {
            base_interval: Some(duration(base)),
            max_interval: max.map(duration),
        }),
        ..Default::default()
    })
}

/// `hash: [{header: user-id}, channel]`.
fn hashes(node: &Node, problems: &mut Problems) -> Vec<HashPolicy> {
    let items = read::list(node, "hash", problems).unwrap_or_default();
    items.iter().filter_map(|item| hash(item, problems)).collect()
}

fn hash(node: &Node, problems: &mut Problems) -> Option<HashPolicy> {
    if !matches!(node.value, Value::Map(_)) {
        read::word(node, &[("channel", ())], problems)?;
        let state = FilterState { key: "io.grpc.channel_id".to_owned() };
        return Some(HashPolicy {
            policy_specifier: Some(PolicySpecifier::FilterState(state)),
            terminal: false,
        });
    }
    let fields = Fields::of(node, "a hash", &["header", "terminal"], problems)?;
    let Some(name) = fields.get("header") else {
        return problems.fail(node.at, "a hash is channel, or a map with header");
    };
    let header = Header { header_name: read::text(name, problems)?.to_owned(), ..Default::default() };
    let terminal = fields.read("terminal", problems, read::boolean).unwrap_or(false);
    Some(HashPolicy { policy_specifier: Some(PolicySpecifier::Header(header)), terminal })
}
