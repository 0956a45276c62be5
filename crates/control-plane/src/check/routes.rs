//! Warnings about routes: those that gRPC clients ignore, that fail, or that an earlier one hides; weights of zero;
//! endpoints and localities that are skipped.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3::HealthStatus;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::ClusterSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::{Route, RouteConfiguration, RouteMatch};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use prost::{Message as _, Name as _};
use proxyless_xds::resource::Resource;

use super::{Item, Subject};

pub(super) fn warn(item: &Item, resource: &Resource, subject: &mut Subject) {
    let bytes = unwrapped(item);
    match resource {
        Resource::RouteConfiguration(_) => {
            if let Ok(config) = RouteConfiguration::decode(&bytes[..]) {
                route_config("", &config, subject);
            }
        }
        Resource::Listener(_) => {
            let api =
                Listener::decode(&bytes[..]).ok().and_then(|listener| listener.api_listener?.api_listener);
            let manager = api.and_then(|api| HttpConnectionManager::decode(&api.value[..]).ok());
            if let Some(RouteSpecifier::RouteConfig(config)) =
                manager.and_then(|manager| manager.route_specifier)
            {
                route_config("api_listener.api_listener.route_config.", &config, subject);
            }
        }
        Resource::ClusterLoadAssignment(_) => {
            if let Ok(assignment) = ClusterLoadAssignment::decode(&bytes[..]) {
                endpoints(&assignment, subject);
            }
        }
        Resource::Cluster(_) | Resource::AggregateClusterConfig(_) => {}
    }
}

/// The bytes of the resource itself, without a wrapper.
fn unwrapped(item: &Item) -> Vec<u8> {
    if item.value.type_url.rsplit('/').next() == Some(Wrapper::full_name().as_str())
        && let Ok(wrapper) = Wrapper::decode(&item.value.value[..])
    {
        return wrapper.resource.map(|inner| inner.value).unwrap_or_default();
    }
    item.value.value.clone()
}

fn route_config(prefix: &str, config: &RouteConfiguration, subject: &mut Subject) {
    if config.virtual_hosts.is_empty() {
        subject.warn(&format!("{prefix}virtual_hosts"), "is empty: no RPC has a route");
    }
    let mut domains = BTreeSet::new();
    for (h, host) in config.virtual_hosts.iter().enumerate() {
        let at_host = format!("{prefix}virtual_hosts[{h}]");
        for (d, domain) in host.domains.iter().enumerate() {
            if !domains.insert(domain.to_ascii_lowercase()) {
                subject.warn(
                    &format!("{at_host}.domains[{d}]"),
                    format!("{domain:?} is also a domain above: this one never matches"),
                );
            }
        }
        if host.routes.is_empty() {
            subject.warn(&format!("{at_host}.routes"), "is empty: all RPCs of the virtual host fail");
        }
        let mut before: Vec<(usize, &RouteMatch)> = Vec::new();
        for (r, route) in host.routes.iter().enumerate() {
            let at = format!("{at_host}.routes[{r}]");
            if !one_route(&at, route, subject) {
                continue;
            }
            let Some(matcher) = &route.r#match else { continue };
            if let Some((earlier, _)) = before.iter().find(|(_, earlier)| covers(earlier, matcher)) {
                subject.warn(&at, format!("is never reached: routes[{earlier}] matches all of its RPCs"));
            }
            before.push((r, matcher));
        }
    }
}

/// Whether the route is used at all.
fn one_route(at: &str, route: &Route, subject: &mut Subject) -> bool {
    if let Some(matcher) = &route.r#match {
        if !matcher.query_parameters.is_empty() {
            let path = format!("{at}.match.query_parameters");
            subject.warn(&path, "RPCs have no query parameters: gRPC clients ignore the route");
            return false;
        }
        let path = match &matcher.path_specifier {
            Some(PathSpecifier::Prefix(prefix)) if !prefix.is_empty() && !prefix.starts_with('/') => {
                Some(prefix)
            }
            Some(PathSpecifier::Path(path)) if path.matches('/').count() != 2 || !path.starts_with('/') => {
                Some(path)
            }
            _ => None,
        };
        if let Some(path) = path {
            let message = format!("{path:?} never matches: paths of RPCs are /package.Service/Method");
            subject.warn(&format!("{at}.match"), message);
            return false;
        }
    }
    match &route.action {
        Some(Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                for (i, cluster) in weighted.clusters.iter().enumerate() {
                    if cluster.weight.is_some_and(|weight| weight.value == 0) {
                        let path = format!("{at}.route.weighted_clusters.clusters[{i}]");
                        subject.warn(&path, format!("{:?} has weight zero and gets no RPCs", cluster.name));
                    }
                }
                true
            }
            Some(ClusterSpecifier::Cluster(_)) => true,
            _ => {
                let path = format!("{at}.route");
                subject.warn(&path, "neither cluster nor weighted_clusters: gRPC clients ignore the route");
                false
            }
        },
        _ => {
            subject.warn(at, "has no action that gRPC clients support: its RPCs fail");
            true
        }
    }
}

/// Whether one condition without headers and fraction matches all paths of another.
fn covers(earlier: &RouteMatch, later: &RouteMatch) -> bool {
    let unconditional = earlier.headers.is_empty() && earlier.runtime_fraction.is_none();
    let exact_case = earlier.case_sensitive.is_none_or(|value| value.value);
    if !unconditional {
        return false;
    }
    match (&earlier.path_specifier, &later.path_specifier) {
        (Some(PathSpecifier::Prefix(prefix)), _) if prefix.is_empty() || prefix == "/" => true,
        (
            Some(PathSpecifier::Prefix(prefix)),
            Some(PathSpecifier::Prefix(path) | PathSpecifier::Path(path)),
        ) => {
            let later_exact = later.case_sensitive.is_none_or(|value| value.value);
            exact_case && later_exact && path.starts_with(prefix.as_str())
        }
        (Some(PathSpecifier::Path(earlier)), Some(PathSpecifier::Path(path))) => {
            exact_case && earlier == path
        }
        _ => false,
    }
}

fn endpoints(assignment: &ClusterLoadAssignment, subject: &mut Subject) {
    for (l, locality) in assignment.endpoints.iter().enumerate() {
        let at = format!("endpoints[{l}]");
        // A27-96: a locality without weight is skipped.
        if locality.load_balancing_weight.is_none_or(|weight| weight.value == 0) {
            subject.warn(&at, "has no load_balancing_weight: gRPC clients skip the locality");
            continue;
        }
        for (e, endpoint) in locality.lb_endpoints.iter().enumerate() {
            let health = endpoint.health_status();
            if matches!(health, HealthStatus::Unhealthy | HealthStatus::Timeout | HealthStatus::Degraded) {
                let path = format!("{at}.lb_endpoints[{e}].health_status");
                subject
                    .warn(&path, format!("{}: gRPC clients do not use the endpoint", health.as_str_name()));
            }
        }
    }
}
