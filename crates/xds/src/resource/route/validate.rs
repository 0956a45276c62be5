//! Validation of a [`RouteConfiguration`] (gRFC A28, A36, A39).

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as wire;
use wire::route_match::PathSpecifier;

use super::action::route_action;
use super::retry::retry_policy;
use super::{Route, RouteConfiguration, RouteMatch, VirtualHost};
use crate::resource::Resource;
use crate::resource::common::per_million;
use crate::resource::field::Field;
use crate::resource::filter::filter_overrides;
use crate::resource::matcher::{header_matcher, path_matcher};
use crate::resource::named::NamedResource;

impl NamedResource for wire::RouteConfiguration {
    const NAME_FIELD: &'static str = "name";

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self, at: &Field<'_>, _: Option<&Resource>) -> Option<Resource> {
        Some(Resource::RouteConfiguration(Arc::new(route_configuration(at, self))))
    }
}

/// Validates routes from RDS or inline.
pub(crate) fn route_configuration(at: &Field<'_>, proto: &wire::RouteConfiguration) -> RouteConfiguration {
    let at = at.field("virtual_hosts");
    let virtual_hosts = proto.virtual_hosts.iter().enumerate();
    let virtual_hosts = virtual_hosts.map(|(i, host)| Arc::new(virtual_host(&at.index(i), host)));
    RouteConfiguration { virtual_hosts: virtual_hosts.collect() }
}

fn virtual_host(at: &Field<'_>, proto: &wire::VirtualHost) -> VirtualHost {
    check_domains(&at.field("domains"), &proto.domains);
    let filter_overrides =
        filter_overrides(&at.field("typed_per_filter_config"), &proto.typed_per_filter_config);
    let retry_policy =
        proto.retry_policy.as_ref().and_then(|proto| retry_policy(&at.field("retry_policy"), proto));
    let at = at.field("routes");
    let routes =
        proto.routes.iter().enumerate().filter_map(|(i, proto)| route(&at.index(i), proto)).collect();
    VirtualHost {
        name: proto.name.clone(),
        domains: proto.domains.clone(),
        routes,
        retry_policy: retry_policy.map(Arc::new),
        filter_overrides,
    }
}

/// A27-75: a domain may occur more than once, in one or several virtual hosts; the first match applies.
fn check_domains(at: &Field<'_>, domains: &[String]) {
    if domains.is_empty() {
        at.reject("must not be empty");
    }
    for (i, domain) in domains.iter().enumerate() {
        if !is_domain_pattern(domain) {
            at.index(i).reject(format!("{domain:?} is not a domain pattern"));
        }
    }
}

/// Exact, `*suffix`, `prefix*` or `*` (A27-75).
fn is_domain_pattern(domain: &str) -> bool {
    let fixed = domain.strip_prefix('*').or_else(|| domain.strip_suffix('*')).unwrap_or(domain);
    !domain.is_empty() && !fixed.contains('*')
}

/// A route; `None` if it can never match and is ignored, or after a violation.
fn route(at: &Field<'_>, proto: &wire::Route) -> Option<Route> {
    let matcher = at.field("match").require(proto.r#match.as_ref());
    if matcher.is_some_and(|matcher| !can_match(matcher)) {
        return None;
    }
    // A36: a route with an unsupported action stays; matching RPCs fail.
    let action = match &proto.action {
        Some(wire::route::Action::Route(action)) => Some(route_action(&at.field("route"), action)?),
        _ => None,
    };
    let matcher = matcher.and_then(|matcher| route_match(&at.field("match"), matcher));
    let filter_overrides =
        filter_overrides(&at.field("typed_per_filter_config"), &proto.typed_per_filter_config);
    // The action is absent only after a violation.
    let action = action.flatten();
    Some(Route { name: proto.name.clone(), matcher: matcher?, action, filter_overrides })
}

/// Whether the route could match any RPC, given that RPCs have no query parameters.
fn can_match(proto: &wire::RouteMatch) -> bool {
    // A28: gRPC has no query parameters, so such a route never matches.
    if !proto.query_parameters.is_empty() {
        return false;
    }
    // Every path of an RPC is `/service/method`.
    match &proto.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) if !prefix.is_empty() => match prefix.strip_prefix('/') {
            Some(rest) => match rest.split_once('/') {
                Some((service, method)) => !service.is_empty() && !method.contains('/'),
                None => true,
            },
            None => false,
        },
        Some(PathSpecifier::Path(path)) => {
            path.strip_prefix('/').and_then(|rest| rest.split_once('/')).is_some_and(|(service, method)| {
                !service.is_empty() && !method.is_empty() && !method.contains('/')
            })
        }
        _ => true,
    }
}

fn route_match(at: &Field<'_>, proto: &wire::RouteMatch) -> Option<RouteMatch> {
    let path = path_matcher(at, proto);
    let at_headers = at.field("headers");
    let headers = proto.headers.iter().enumerate();
    let headers = headers.filter_map(|(i, header)| header_matcher(&at_headers.index(i), header)).collect();
    // A28: there is no runtime, so the default value applies.
    let fraction = proto.runtime_fraction.as_ref().and_then(|fraction| fraction.default_value.as_ref());
    let fraction_per_million = fraction
        .and_then(|fraction| per_million(&at.field("runtime_fraction").field("default_value"), fraction));
    Some(RouteMatch { path: path?, headers, fraction_per_million })
}
