//! Validation of a [`Cluster`] (gRFC A27, A32, A37, A52, A75, A86, A105).

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{ConfigSource, RoutingPriority, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use prost::Name;

use super::discovery::cluster_kind;
use super::outlier_detection::outlier_detection;
use super::transport_socket::TransportSocket;
use super::{CircuitBreakers, Cluster, LrsServer, MetricSelection, OverrideHostStatus};
use crate::resource::common::duration;
use crate::resource::extension::Extension;
use crate::resource::field::Field;
use crate::resource::lb_config::cluster_policy;
use crate::resource::named::NamedResource;
use crate::resource::{LbPolicy, Resource};

/// A75-33: the default time for which the connection of an unused session is kept.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

impl NamedResource for wire::Cluster {
    const NAME_FIELD: &'static str = "name";

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self, at: &Field<'_>, _: Option<&Resource>) -> Option<Resource> {
        let kind = cluster_kind(at, self);
        let lb_policy = lb_policy(at, self);
        let lrs_server =
            self.lrs_server.as_ref().and_then(|proto| lrs_server(&at.field("lrs_server"), proto));
        let upstream_config = self.upstream_config.as_ref();
        let idle_timeout =
            upstream_config.and_then(|proto| idle_timeout(&at.field("upstream_config"), proto));
        let at_outliers = at.field("outlier_detection");
        let outlier_detection =
            self.outlier_detection.as_ref().and_then(|proto| outlier_detection(&at_outliers, proto));
        // A29-08: without them an endpoint that needs TLS would be served in plaintext.
        if !self.transport_socket_matches.is_empty() {
            at.field("transport_socket_matches").reject("is not supported; use transport_socket");
        }
        let at_socket = at.field("transport_socket");
        let socket = self.transport_socket.as_ref();
        let TransportSocket { tls, http_connect } =
            socket.and_then(|proto| TransportSocket::validate(&at_socket, proto)).unwrap_or_default();
        Some(Resource::Cluster(Arc::new(Cluster {
            kind: kind?,
            lb_policy,
            lrs_server,
            lrs_report_endpoint_metrics: metric_selection(at, self),
            circuit_breakers: circuit_breakers(at, self),
            idle_timeout: idle_timeout.unwrap_or(DEFAULT_IDLE_TIMEOUT),
            outlier_detection: outlier_detection.map(Arc::new),
            override_host_status: OverrideHostStatus::of(self),
            tls: tls.map(Arc::new),
            http_connect,
        })))
    }
}

/// The load balancing policy. Aggregates have none: the policies of their leaves apply.
fn lb_policy(at: &Field<'_>, proto: &wire::Cluster) -> Option<LbPolicy> {
    let is_aggregate =
        matches!(proto.cluster_discovery_type, Some(wire::cluster::ClusterDiscoveryType::ClusterType(_)));
    // A75-11 to A75-15: an aggregate's policy is not validated, unless the backward compatibility gate is open.
    if is_aggregate && !at.context().gates.aggregate_cluster_backward_compat {
        return None;
    }
    cluster_policy(at, proto)
}

/// A27-92, A27-93: load is reported to the same server or not at all.
fn lrs_server(at: &Field<'_>, proto: &ConfigSource) -> Option<LrsServer> {
    match proto.config_source_specifier {
        Some(ConfigSourceSpecifier::Self_(_)) => Some(LrsServer::SelfServer),
        _ => {
            at.reject("must be self");
            None
        }
    }
}

/// A85: the list is used only if its gate is open; A64: otherwise all named metrics are reported.
fn metric_selection(at: &Field<'_>, proto: &wire::Cluster) -> MetricSelection {
    if at.context().gates.orca_lrs_propagation {
        MetricSelection::listed(&proto.lrs_report_endpoint_metrics)
    } else {
        MetricSelection::AllNamed
    }
}

fn circuit_breakers(at: &Field<'_>, proto: &wire::Cluster) -> CircuitBreakers {
    let mut breakers = CircuitBreakers::default();
    let Some(proto) = &proto.circuit_breakers else { return breakers };
    if let Some(max_requests) = first_default(&proto.thresholds).and_then(|(_, first)| first.max_requests) {
        breakers.max_requests = max_requests.value;
    }
    // A105-01: the same for each endpoint, behind its gate.
    if at.context().gates.connection_scaling
        && let Some((index, first)) = first_default(&proto.per_host_thresholds)
        && let Some(max_connections) = first.max_connections
    {
        if max_connections.value == 0 {
            let breakers = at.field("circuit_breakers");
            let thresholds = breakers.field("per_host_thresholds");
            thresholds.index(index).field("max_connections").reject("must not be 0");
        }
        breakers.max_connections_per_host = Some(max_connections.value);
    }
    breakers
}

/// A32, X-13: only the first threshold of priority DEFAULT applies.
fn first_default(thresholds: &[Thresholds]) -> Option<(usize, &Thresholds)> {
    let mut all = thresholds.iter().enumerate();
    all.find(|(_, proto)| proto.priority == RoutingPriority::Default as i32)
}

/// A75-26 to A75-32: `None` if unset or after a violation.
fn idle_timeout(at: &Field<'_>, proto: &TypedExtensionConfig) -> Option<Duration> {
    let at = at.field("typed_config");
    let extension = Extension::read(&at, proto.typed_config.as_ref())?;
    if extension.type_name != HttpProtocolOptions::full_name() {
        return at.fail(format!("{} is not HttpProtocolOptions", extension.type_name));
    }
    let options: HttpProtocolOptions = extension.decode(&at)?;
    let idle_timeout = options.common_http_protocol_options?.idle_timeout?;
    duration(&at.field("common_http_protocol_options").field("idle_timeout"), &idle_timeout)
}
