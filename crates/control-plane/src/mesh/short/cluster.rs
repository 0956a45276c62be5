//! Clusters: with endpoints, DNS or aggregates, and their settings.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::{Cluster, OutlierDetection};
use envoy_types::pb::envoy::config::core::v3::HttpProtocolOptions as CommonOptions;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use envoy_types::pb::google::protobuf::UInt32Value;
use proxyless_testkit::Resource;
use proxyless_testkit::resources::{
    ClusterExt as _, LocalityExt as _, UpstreamTlsExt as _, aggregate_cluster, aggregate_resource,
    aggregate_resource_cluster, assignment, duration, eds_cluster, extension, locality, logical_dns_cluster,
    upstream_tls,
};

use super::endpoint::{HEALTH, cluster_endpoints, endpoints};
use super::policy::policy;
use crate::file::node::{Node, Value};
use crate::file::problem::Problems;
use crate::file::read::{self, Fields};

/// The fields that say where the endpoints of a cluster are.
pub(super) const SOURCES: &[&str] =
    &["endpoints", "localities", "priorities", "dns", "aggregate", "aggregate_resource"];
/// The other fields.
pub(super) const SETTINGS: &[&str] = &[
    "policy",
    "max_requests",
    "outlier_detection",
    "report_load",
    "drops",
    "session_health",
    "idle_timeout",
    "tls",
];

/// An entry of `clusters`: a map, or a list of endpoints.
pub(in crate::mesh) fn cluster(name: &str, node: &Node, problems: &mut Problems) -> Vec<Resource> {
    if !matches!(node.value, Value::Map(_)) {
        let locality = locality("", endpoints(node, problems)).region("");
        return vec![eds_cluster(name).into(), assignment(name, [locality]).into()];
    }
    let known: Vec<&str> = SOURCES.iter().chain(SETTINGS).copied().collect();
    let Some(fields) = Fields::of(node, "a cluster", &known, problems) else { return Vec::new() };
    with_fields(name, node, &fields, problems)
}

/// The cluster of a map whose fields have been checked; it may have others.
pub(super) fn with_fields(
    name: &str,
    node: &Node,
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> Vec<Resource> {
    fields.at_most_one(SOURCES, problems);
    let Some((base, assignment)) = base(name, node, fields, problems) else { return Vec::new() };
    let cluster = settings(base, fields, problems);
    let assignment = assignment.map(Resource::from);
    std::iter::once(cluster.into()).chain(assignment).collect()
}

/// An entry of `aggregate_lists` (gRFC A99).
pub(in crate::mesh) fn aggregate_list(name: &str, node: &Node, problems: &mut Problems) -> Vec<Resource> {
    let Some(children) = children(node, problems) else { return Vec::new() };
    vec![aggregate_resource(name, children)]
}

fn children<'a>(node: &'a Node, problems: &mut Problems) -> Option<Vec<&'a str>> {
    let items = read::list(node, "a list of clusters", problems)?;
    items.iter().map(|item| read::text(item, problems)).collect()
}

fn base(
    name: &str,
    node: &Node,
    fields: &Fields<'_>,
    problems: &mut Problems,
) -> Option<(Cluster, Option<ClusterLoadAssignment>)> {
    if let Some(dns) = fields.get("dns") {
        fields.needs("drops", "endpoints", problems);
        let (host, port) = read::host_and_port(dns, problems)?;
        return Some((logical_dns_cluster(name, &host, port), None));
    }
    if let Some(node) = fields.get("aggregate") {
        return Some((aggregate_cluster(name, children(node, problems)?), None));
    }
    if let Some(node) = fields.get("aggregate_resource") {
        return Some((aggregate_resource_cluster(name, read::text(node, problems)?), None));
    }
    if fields.present(SOURCES).is_empty() {
        return problems.fail(node.at, format!("the cluster needs one of {}", SOURCES.join(", ")));
    }
    Some((eds_cluster(name), Some(cluster_endpoints(name, fields, problems))))
}

fn settings(mut cluster: Cluster, fields: &Fields<'_>, problems: &mut Problems) -> Cluster {
    if let Some(policy) = fields.read("policy", problems, policy) {
        cluster = cluster.lb_policy(policy);
    }
    if let Some(limit) = fields.read("max_requests", problems, read::whole) {
        cluster = cluster.max_requests(limit);
    }
    if let Some(detection) = fields.read("outlier_detection", problems, outlier_detection) {
        cluster = cluster.outlier_detection(detection);
    }
    if fields.read("report_load", problems, read::boolean) == Some(true) {
        cluster = cluster.report_load();
    }
    if let Some(node) = fields.get("session_health") {
        let items = read::list(node, "session_health", problems).unwrap_or_default();
        let words: Vec<_> = items.iter().filter_map(|item| read::word(item, HEALTH, problems)).collect();
        cluster = cluster.override_host_status(words);
    }
    if let Some(timeout) = fields.read("idle_timeout", problems, read::duration) {
        let common = CommonOptions { idle_timeout: Some(duration(timeout)), ..Default::default() };
        let options =
            HttpProtocolOptions { common_http_protocol_options: Some(common), ..Default::default() };
        cluster.upstream_config =
            Some(extension("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", &options));
    }
    if let Some(tls) = fields.read("tls", problems, tls) {
        cluster = cluster.tls(tls);
    }
    cluster
}

fn tls(node: &Node, problems: &mut Problems) -> Option<UpstreamTlsContext> {
    let fields = Fields::of(node, "tls", &["roots", "identity", "server_names"], problems)?;
    let Some(roots) = fields.get("roots") else {
        return problems
            .fail(node.at, "tls needs roots: the name of a certificate provider of the bootstrap");
    };
    let mut tls = upstream_tls(read::text(roots, problems)?);
    if let Some(identity) = fields.read("identity", problems, read::text) {
        tls = tls.identity(identity);
    }
    for name in fields.read("server_names", problems, read::texts).unwrap_or_default() {
        tls = tls.server_name(name);
    }
    Some(tls)
}

fn outlier_detection(node: &Node, problems: &mut Problems) -> Option<OutlierDetection> {
    let known = [
        "interval",
        "ejection_time",
        "max_ejection_time",
        "max_ejection_percent",
        "failure_percentage",
        "success_rate",
    ];
    let fields = Fields::of(node, "outlier_detection", &known, problems)?;
    let time = |name: &str, problems: &mut Problems| {
        fields.read(name, problems, read::duration).map(|time: Duration| duration(time))
    };
    let mut detection = OutlierDetection {
        interval: time("interval", problems),
        base_ejection_time: time("ejection_time", problems),
        max_ejection_time: time("max_ejection_time", problems),
        max_ejection_percent: number(&fields, "max_ejection_percent", problems),
        // Only the algorithms that the file names.
        enforcing_success_rate: Some(UInt32Value { value: 0 }),
        enforcing_failure_percentage: Some(UInt32Value { value: 0 }),
        ..Default::default()
    };
    if let Some(node) = fields.get("failure_percentage") {
        let known = ["threshold", "minimum_hosts", "request_volume", "enforcing"];
        let fields = Fields::of(node, "failure_percentage", &known, problems)?;
        detection.failure_percentage_threshold = number(&fields, "threshold", problems);
        detection.failure_percentage_minimum_hosts = number(&fields, "minimum_hosts", problems);
        detection.failure_percentage_request_volume = number(&fields, "request_volume", problems);
        let enforcing = number(&fields, "enforcing", problems);
        detection.enforcing_failure_percentage = enforcing.or(Some(UInt32Value { value: 100 }));
    }
    if let Some(node) = fields.get("success_rate") {
        let known = ["stdev_factor", "minimum_hosts", "request_volume", "enforcing"];
        let fields = Fields::of(node, "success_rate", &known, problems)?;
        detection.success_rate_stdev_factor = number(&fields, "stdev_factor", problems);
        detection.success_rate_minimum_hosts = number(&fields, "minimum_hosts", problems);
        detection.success_rate_request_volume = number(&fields, "request_volume", problems);
        let enforcing = number(&fields, "enforcing", problems);
        detection.enforcing_success_rate = enforcing.or(Some(UInt32Value { value: 100 }));
    }
    if fields.present(&["failure_percentage", "success_rate"]).is_empty() {
        return problems.fail(node.at, "outlier_detection needs failure_percentage or success_rate");
    }
    Some(detection)
}

fn number(fields: &Fields<'_>, name: &str, problems: &mut Problems) -> Option<UInt32Value> {
    fields.read(name, problems, read::whole).map(|value| UInt32Value { value })
}
