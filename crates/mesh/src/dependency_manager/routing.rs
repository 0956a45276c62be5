//! Resolution of the listener to the virtual host.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_xds::resource::{
    ClusterSpecifier, HttpConnectionManager, Listener, ListenerKind, ResourceType, RouteConfiguration,
    RouteSource, VirtualHost,
};

use super::resources::Wanted;
use super::{DependencyManager, notes};
use crate::virtual_host::find_virtual_host;
use crate::xds_config::XdsConfig;

/// The result of resolving the listener and its routes.
pub(super) enum Routing {
    /// A resource is still loading.
    Loading,
    /// Unusable: the channel must drop its configuration (A74).
    Failed(Arc<str>),
    /// Both are available.
    Ready(Routes),
}

/// A listener with its routes.
#[derive(Clone, Debug)]
pub(super) struct Routes {
    pub(super) listener: Arc<Listener>,
    pub(super) route_config: Arc<RouteConfiguration>,
    pub(super) virtual_host: Arc<VirtualHost>,
}

impl Routes {
    /// Whether these are the resources of `config`, by pointer.
    pub(super) fn ptr_eq(&self, config: &XdsConfig) -> bool {
        Arc::ptr_eq(&self.listener, &config.listener)
            && Arc::ptr_eq(&self.route_config, &config.route_config)
            && Arc::ptr_eq(&self.virtual_host, &config.virtual_host)
    }
}

/// Every cluster in a route of a virtual host, including those of weight zero.
pub(super) fn clusters(host: &VirtualHost) -> BTreeSet<Arc<str>> {
    let actions = host.routes.iter().filter_map(|route| route.action.as_ref());
    let mut names = BTreeSet::new();
    for action in actions {
        match &action.cluster {
            ClusterSpecifier::Cluster(name) => names.extend([Arc::clone(name)]),
            ClusterSpecifier::Weighted(clusters) => {
                names.extend(clusters.iter().map(|c| Arc::clone(&c.name)))
            }
        }
    }
    names
}

impl DependencyManager {
    /// The problems of the listener and routes in use (A37-21), for the RPC errors of every cluster.
    pub(super) fn routing_note(&self) -> Option<Arc<str>> {
        let listener = self.resources.listener(&self.listener_name).and_then(Result::ok);
        let rds = listener.and_then(|listener| match &listener.kind {
            ListenerKind::Api(HttpConnectionManager { routes: RouteSource::Rds(name), .. }) => {
                self.resources.ambient(ResourceType::RouteConfiguration, name)
            }
            _ => None,
        });
        notes::join(
            self.resources.ambient(ResourceType::Listener, &self.listener_name).into_iter().chain(rds),
        )
    }

    /// Resolves the listener to the virtual host, and records the required resources in `wanted`.
    pub(super) fn route(&self, wanted: &mut Wanted) -> Routing {
        // A27-36, A27-64, A27-65: exactly the Listener with the target's name.
        wanted.resource(ResourceType::Listener, &self.listener_name);
        let listener = match self.resources.listener(&self.listener_name) {
            None => return Routing::Loading,
            Some(Err(why)) => return Routing::Failed(why),
            Some(Ok(listener)) => listener,
        };
        let manager = match &listener.kind {
            // A27-66, A74: valid, but not for clients.
            ListenerKind::Socket => {
                let why =
                    format!("Listener {}: it is a socket listener, not an API listener", self.listener_name);
                return Routing::Failed(why.into());
            }
            ListenerKind::Api(manager) => manager,
        };
        let (route_config, place) = match &manager.routes {
            // A27-38: no RDS while the routes are inline.
            RouteSource::Inline(route_config) => (route_config, format!("Listener {}", self.listener_name)),
            // A27-37, A27-72: exactly the name in the Listener.
            RouteSource::Rds(name) => {
                wanted.resource(ResourceType::RouteConfiguration, name);
                match self.resources.route_config(name) {
                    None => return Routing::Loading,
                    // The old routes stay in use until the new ones are answered.
                    Some(Err(_))
                        if self.resources.is_unreachable(ResourceType::RouteConfiguration, name)
                            && self.routes_serve() =>
                    {
                        return Routing::Loading;
                    }
                    Some(Err(why)) => return Routing::Failed(why),
                    Some(Ok(route_config)) => (route_config, format!("RouteConfiguration {name}")),
                }
            }
        };
        // A27-75, A27-76
        match find_virtual_host(route_config, &self.authority) {
            None => {
                let there_are = notes::about_domains(route_config);
                let why = format!("{place}: no virtual host for {:?} ({there_are})", self.authority);
                Routing::Failed(why.into())
            }
            Some(virtual_host) => Routing::Ready(Routes {
                listener: Arc::clone(listener),
                route_config: Arc::clone(route_config),
                virtual_host: Arc::clone(virtual_host),
            }),
        }
    }
}
