//! Fields that gRPC clients do not read. A message with an entry in [`READ`] is compared with it; others are not
//! looked into.

use prost_reflect::{DynamicMessage, ReflectMessage as _, Value as Field};

use super::{Item, Subject};
use crate::Messages;

/// The fields that gRPC clients read, and those that are harmless (names, statistics).
const READ: &[(&str, &[&str])] = &[
    ("envoy.config.listener.v3.Listener", &["name", "api_listener", "stat_prefix", "address", "metadata"]),
    ("envoy.config.listener.v3.ApiListener", &["api_listener"]),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        &["codec_type", "stat_prefix", "rds", "route_config", "http_filters", "common_http_protocol_options"],
    ),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        &["name", "typed_config", "is_optional"],
    ),
    ("envoy.config.route.v3.RouteConfiguration", &["name", "virtual_hosts"]),
    (
        "envoy.config.route.v3.VirtualHost",
        &["name", "domains", "routes", "retry_policy", "typed_per_filter_config"],
    ),
    (
        "envoy.config.route.v3.Route",
        &[
            "name",
            "match",
            "route",
            "redirect",
            "direct_response",
            "filter_action",
            "non_forwarding_action",
            "typed_per_filter_config",
        ],
    ),
    (
        "envoy.config.route.v3.RouteMatch",
        &[
            "prefix",
            "path",
            "safe_regex",
            "case_sensitive",
            "headers",
            "runtime_fraction",
            "query_parameters",
            "grpc",
        ],
    ),
    (
        "envoy.config.route.v3.RouteAction",
        &[
            "cluster",
            "weighted_clusters",
            "cluster_header",
            "cluster_specifier_plugin",
            "max_stream_duration",
            "hash_policy",
            "retry_policy",
            "auto_host_rewrite",
        ],
    ),
    ("envoy.config.route.v3.RetryPolicy", &["retry_on", "num_retries", "retry_back_off"]),
    (
        "envoy.config.cluster.v3.Cluster",
        &[
            "name",
            "alt_stat_name",
            "type",
            "cluster_type",
            "eds_cluster_config",
            "load_assignment",
            "lb_policy",
            "ring_hash_lb_config",
            "least_request_lb_config",
            "load_balancing_policy",
            "lrs_server",
            "lrs_report_endpoint_metrics",
            "circuit_breakers",
            "upstream_config",
            "outlier_detection",
            "transport_socket",
            "common_lb_config",
            "metadata",
        ],
    ),
    ("envoy.config.cluster.v3.CircuitBreakers", &["thresholds"]),
    ("envoy.config.cluster.v3.CircuitBreakers.Thresholds", &["priority", "max_requests"]),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment", &["cluster_name", "endpoints", "policy"]),
    ("envoy.config.endpoint.v3.ClusterLoadAssignment.Policy", &["drop_overloads"]),
    (
        "envoy.config.endpoint.v3.LocalityLbEndpoints",
        &["locality", "lb_endpoints", "load_balancing_weight", "priority", "metadata"],
    ),
    (
        "envoy.config.endpoint.v3.LbEndpoint",
        &["endpoint", "health_status", "load_balancing_weight", "metadata"],
    ),
    ("envoy.config.endpoint.v3.Endpoint", &["address", "hostname", "additional_addresses"]),
];

/// Fields that are checked in depth.
const MAX_DEPTH: usize = 40;

/// Warns of fields that have no effect.
pub(super) fn warn(item: &Item, messages: &Messages, subject: &mut Subject) {
    let Some(message) = decode(messages, &item.value.type_url, &item.value.value) else { return };
    visit(&message, messages, &mut String::new(), 0, subject);
}

fn decode(messages: &Messages, type_url: &str, bytes: &[u8]) -> Option<DynamicMessage> {
    let descriptor = messages.descriptor(type_url.rsplit('/').next()?)?;
    DynamicMessage::decode(descriptor, bytes).ok()
}

fn visit(
    message: &DynamicMessage,
    messages: &Messages,
    path: &mut String,
    depth: usize,
    subject: &mut Subject,
) {
    let name = message.descriptor().full_name().to_owned();
    if depth > MAX_DEPTH {
        return;
    }
    if name == "google.protobuf.Any" {
        let inner = message.clone().transcode_to::<envoy_types::pb::google::protobuf::Any>().ok();
        if let Some(inner) = inner.and_then(|any| decode(messages, &any.type_url, &any.value)) {
            visit(&inner, messages, path, depth + 1, subject);
        }
        return;
    }
    let is_wrapper = name == "envoy.service.discovery.v3.Resource";
    let read = READ.iter().find(|(of, _)| *of == name).map(|(_, fields)| *fields);
    if read.is_none() && !is_wrapper {
        return;
    }
    for (field, value) in message.fields() {
        let length = path.len();
        if !is_wrapper {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(field.name());
        }
        if read.is_some_and(|read| !read.contains(&field.name())) {
            subject.warn(path, "is ignored by gRPC clients");
        } else {
            match value {
                Field::Message(inner) => visit(inner, messages, path, depth + 1, subject),
                Field::List(items) => {
                    let length = path.len();
                    for (i, item) in items.iter().enumerate() {
                        if let Field::Message(inner) = item {
                            path.push_str(&format!("[{i}]"));
                            visit(inner, messages, path, depth + 1, subject);
                            path.truncate(length);
                        }
                    }
                }
                _ => {}
            }
        }
        path.truncate(length);
    }
}

/// Every message and field of the table exists.
#[cfg(test)]
pub(super) fn table_is_true(messages: &Messages) {
    for (name, fields) in READ {
        let descriptor = messages.descriptor(name).unwrap_or_else(|| panic!("no message {name}"));
        for field in *fields {
            assert!(descriptor.get_field_by_name(field).is_some(), "no field {field} in {name}");
        }
    }
}
