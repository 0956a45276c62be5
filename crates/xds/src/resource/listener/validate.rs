//! Validation of a [`Listener`] (A27-66 to A27-71, gRFC A31, A39, A41).

use std::sync::Arc;

use envoy_types::pb::envoy::config::listener::v3 as wire;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use hcm::http_connection_manager::RouteSpecifier;
use prost::Name;

use super::{HttpConnectionManager, Listener, ListenerKind, RouteSource};
use crate::resource::common::{ads_or_self, duration};
use crate::resource::extension::Extension;
use crate::resource::field::Field;
use crate::resource::filter::http_filters;
use crate::resource::named::NamedResource;
use crate::resource::{Resource, route};

impl NamedResource for wire::Listener {
    const NAME_FIELD: &'static str = "name";

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self, at: &Field<'_>, _: Option<&Resource>) -> Option<Resource> {
        Some(Resource::Listener(Arc::new(Listener { kind: kind(at, self)? })))
    }
}

fn kind(at: &Field<'_>, proto: &wire::Listener) -> Option<ListenerKind> {
    // A27-66: a listener with an API listener is for clients, even if it has an address as well.
    match (&proto.api_listener, &proto.address) {
        (Some(api_listener), _) => {
            let at = at.field("api_listener");
            let at = at.field("api_listener");
            let extension = Extension::read(&at, api_listener.api_listener.as_ref())?;
            connection_manager(&at, &extension).map(ListenerKind::Api)
        }
        (None, Some(_)) => Some(ListenerKind::Socket),
        (None, None) => at.fail("must have an api_listener or an address"),
    }
}

fn connection_manager(at: &Field<'_>, extension: &Extension<'_>) -> Option<HttpConnectionManager> {
    // A27-67: an API listener contains nothing else.
    if extension.type_name != hcm::HttpConnectionManager::full_name() {
        return at.fail(format!("{} is not an HttpConnectionManager", extension.type_name));
    }
    let proto: hcm::HttpConnectionManager = extension.decode(at)?;
    // A41: the peer address is never taken from headers.
    if proto.xff_num_trusted_hops != 0 {
        at.field("xff_num_trusted_hops").reject("must be zero");
    }
    if !proto.original_ip_detection_extensions.is_empty() {
        at.field("original_ip_detection_extensions").reject("must be empty");
    }
    // A31: the default for routes without their own limit.
    let options = proto.common_http_protocol_options.as_ref();
    let max_stream_duration = options.and_then(|options| options.max_stream_duration.as_ref());
    let max_stream_duration = max_stream_duration.and_then(|proto| {
        duration(&at.field("common_http_protocol_options").field("max_stream_duration"), proto)
    });
    let filters = http_filters(&at.field("http_filters"), &proto.http_filters);
    let routes = route_source(at, proto.route_specifier.as_ref())?;
    Some(HttpConnectionManager { routes, max_stream_duration, filters })
}

fn route_source(at: &Field<'_>, specifier: Option<&RouteSpecifier>) -> Option<RouteSource> {
    match specifier {
        // A27-68: inline routes.
        Some(RouteSpecifier::RouteConfig(config)) => {
            let config = route::route_configuration(&at.field("route_config"), config);
            Some(RouteSource::Inline(Arc::new(config)))
        }
        // A27-69, A27-70: by name, on the same stream.
        Some(RouteSpecifier::Rds(rds)) => {
            let at = at.field("rds");
            let source = ads_or_self(&at.field("config_source"), rds.config_source.as_ref());
            let name = at.field("route_config_name").require_text(&rds.route_config_name);
            source.and(name).map(|name| RouteSource::Rds(name.into()))
        }
        Some(RouteSpecifier::ScopedRoutes(_)) => at.field("scoped_routes").fail("is not supported"),
        // A27-71: the routes must have a source.
        None => at.fail("must have route_config or rds"),
    }
}
