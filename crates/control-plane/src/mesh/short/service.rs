//! Services: the targets of clients. Each becomes a Listener and a RouteConfiguration of its name, and a cluster if it
//! has endpoints of its own.

use envoy_types::pb::envoy::config::core::v3::HttpProtocolOptions;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::HttpFault;
use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ConnectionManagerExt as _, connection_manager, duration, fault_abort, fault_delay, http_filter,
    listener_with, route as route_to, route_config, simple_route_config, stateful_session_with, virtual_host,
};

use super::cluster::{SETTINGS, SOURCES, cluster, with_fields};
use super::route::{retry, route};
use crate::file::node::{Node, Value};
use crate::file::problem::Problems;
use crate::file::read::{self, Fields};

const OWN: &[&str] = &["cluster", "routes", "hosts", "timeout", "retry", "session", "fault"];

/// An entry of `services`: an address or a list of addresses, or a map.
pub(in crate::mesh) fn service(name: &str, node: &Node, problems: &mut Problems) -> Vec<Resource> {
    let mut resources = Vec::new();
    if !matches!(node.value, Value::Map(_)) {
        resources.extend(cluster(name, node, problems));
        resources.push(listener_with(name, &connection_manager(name)).into());
        resources.push(simple_route_config(name, name).into());
        return resources;
    }
    let known: Vec<&str> = OWN.iter().chain(SOURCES).chain(SETTINGS).copied().collect();
    let Some(fields) = Fields::of(node, "a service", &known, problems) else { return resources };
    // A service with endpoints has a cluster of its own name.
    let own_cluster = !fields.present(SOURCES).is_empty();
    if own_cluster {
        resources.extend(with_fields(name, node, &fields, problems));
    }
    for setting in fields.present(SETTINGS) {
        if !own_cluster {
            let at = node.entry(setting).map_or(node.at, |entry| entry.key_at);
            problems.add(
                at,
                format!("{setting} belongs to a cluster: set it there, or give the service endpoints"),
            );
        }
    }
    fields.at_most_one(&["cluster", "routes"], problems);
    let routes = match (fields.get("routes"), fields.get("cluster")) {
        (Some(list), _) => {
            let items = read::list(list, "routes", problems).unwrap_or_default();
            items.iter().filter_map(|item| route(item, problems)).collect()
        }
        (None, Some(cluster)) => read::text(cluster, problems).map(route_to).into_iter().collect(),
        (None, None) if own_cluster => vec![route_to(name)],
        (None, None) => {
            problems.add(node.at, format!("the service {name:?} needs cluster, routes or endpoints"));
            Vec::new()
        }
    };
    let hosts = fields.read("hosts", problems, read::texts).unwrap_or_else(|| vec!["*"]);
    let mut host = virtual_host(hosts, routes);
    host.retry_policy = fields.read("retry", problems, retry);
    resources.push(route_config(name, [host]).into());

    let mut manager = connection_manager(name);
    if let Some(timeout) = fields.read("timeout", problems, read::duration) {
        let limit = Some(duration(timeout));
        manager.common_http_protocol_options =
            Some(HttpProtocolOptions { max_stream_duration: limit, ..Default::default() });
    }
    if let Some(fault) = fields.read("fault", problems, fault) {
        manager = manager.filter(http_filter("fault", &fault));
    }
    if let Some(node) = fields.get("session")
        && let Some(fields) = Fields::of(node, "session", &["cookie", "path", "ttl"], problems)
    {
        if fields.get("cookie").is_none() {
            problems.add(node.at, "session needs cookie: the name of the cookie");
        }
        let cookie = fields.read("cookie", problems, read::text).unwrap_or_default();
        let path = fields.read("path", problems, read::text).unwrap_or_default();
        let ttl = fields.read("ttl", problems, read::duration).unwrap_or_default();
        manager = manager.filter(stateful_session_with(cookie, path, ttl));
    }
    resources.push(listener_with(name, &manager).into());
    resources
}

/// `fault: { delay: 100ms, delay_share: 10%, abort: 14, abort_share: 1% }`.
fn fault(node: &Node, problems: &mut Problems) -> Option<HttpFault> {
    let fields = Fields::of(node, "fault", &["delay", "delay_share", "abort", "abort_share"], problems)?;
    fields.needs("delay_share", "delay", problems);
    fields.needs("abort_share", "abort", problems);
    let share = |name: &str, problems: &mut Problems| {
        fields.read(name, problems, read::percentage).unwrap_or(1_000_000)
    };
    let mut fault = HttpFault::default();
    if let Some(delay) = fields.read("delay", problems, read::duration) {
        fault.delay = fault_delay(delay, share("delay_share", problems)).delay;
    }
    if let Some(code) = fields.read("abort", problems, read::whole) {
        fault.abort = fault_abort(code, share("abort_share", problems)).abort;
    }
    if fields.present(&["delay", "abort"]).is_empty() {
        return problems.fail(node.at, "fault needs delay or abort");
    }
    Some(fault)
}
