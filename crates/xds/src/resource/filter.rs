//! HTTP filters (gRFC A39).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::extensions::filters::http;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

use super::extension::Extension;
use super::fault::{FaultConfig, fault};
use super::field::Field;
use super::stateful_session::{CookieSession, stateful_session, stateful_session_per_route};

/// A filter in the connection manager's chain.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpFilter {
    /// The instance name, which per-route overrides refer to.
    pub name: Arc<str>,
    /// The filter's configuration.
    pub config: HttpFilterConfig,
}

/// The supported filters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HttpFilterConfig {
    /// The router, which ends the chain.
    Router,
    /// Cookie-based sessions (gRFC A55); `None`: disabled, unless an override has a config.
    StatefulSession(Option<Arc<CookieSession>>),
    /// Fault injection (gRFC A33).
    Fault(Arc<FaultConfig>),
    /// In an override: the filter of this name is disabled, whatever its type (`FilterConfig.disabled`).
    Disabled,
    /// A filter that is accepted and has no effect (an optional filter of an unknown type is not in the list at all).
    Ignored {
        /// The type URL.
        type_url: Arc<str>,
    },
}

/// The filter configs of a virtual host, route or weighted cluster, by filter name. They override the filters' own
/// configs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilterOverrides(BTreeMap<Arc<str>, HttpFilterConfig>);

impl FilterOverrides {
    /// The override for the filter of this name, if any.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&HttpFilterConfig> {
        self.0.get(name)
    }
}

impl FromIterator<(Arc<str>, HttpFilterConfig)> for FilterOverrides {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, HttpFilterConfig)>>(overrides: T) -> Self {
        Self(overrides.into_iter().collect())
    }
}

/// Parses a config; `None` only after a violation was recorded.
type Parser = fn(&Field<'_>, &Extension<'_>) -> Option<HttpFilterConfig>;

/// The supported filters, by config type.
const FILTERS: [(&str, Parser); 3] = [
    ("envoy.extensions.filters.http.router.v3.Router", router),
    ("envoy.extensions.filters.http.fault.v3.HTTPFault", fault),
    ("envoy.extensions.filters.http.stateful_session.v3.StatefulSession", stateful_session),
];

/// Filters that gRPC supports on servers only.
const SERVER_FILTERS: [&str; 1] = ["envoy.extensions.filters.http.rbac.v3.RBAC"];

/// The config types allowed in `typed_per_filter_config`.
const OVERRIDES: [(&str, Parser); 3] = [
    ("envoy.extensions.filters.http.fault.v3.HTTPFault", fault),
    ("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", ignored::<http::rbac::v3::RbacPerRoute>),
    ("envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute", stateful_session_per_route),
];

/// The filter chain of a connection manager: unique names, known types, and the router exactly once, at the end.
pub(crate) fn http_filters(at: &Field<'_>, protos: &[hcm::HttpFilter]) -> Arc<[HttpFilter]> {
    let mut names = BTreeSet::new();
    let mut filters = Vec::with_capacity(protos.len());
    for (index, proto) in protos.iter().enumerate() {
        let at = at.index(index);
        // A39: instance names must be unique.
        let name = at.field("name").require_text(&proto.name);
        if name.is_some_and(|name| !names.insert(name)) {
            at.field("name").reject(format!("{:?} is the name of two filters", proto.name));
        }
        if let Some(config) = http_filter(&at.field("typed_config"), proto) {
            filters.push((index, HttpFilter { name: proto.name.as_str().into(), config }));
        }
    }
    // A39: ignored filters do not count for the order.
    match filters.last() {
        None if protos.iter().all(|proto| proto.is_optional) => at.reject("must have a router"),
        None => {}
        Some((index, last)) if last.config != HttpFilterConfig::Router => {
            at.index(*index).reject("the last filter must be the router");
        }
        Some(_) => {}
    }
    for (index, filter) in filters.iter().rev().skip(1).rev() {
        if filter.config == HttpFilterConfig::Router {
            at.index(*index).reject("the router must be the last filter");
        }
    }
    filters.into_iter().map(|(_, filter)| filter).collect()
}

fn http_filter(at: &Field<'_>, proto: &hcm::HttpFilter) -> Option<HttpFilterConfig> {
    let any = match &proto.config_type {
        Some(hcm::http_filter::ConfigType::TypedConfig(any)) => Some(any),
        _ => None,
    };
    let extension = Extension::read(at, any)?;
    let config = parse(at, &extension, &FILTERS, UnknownType::of(proto.is_optional))?;
    // A disabled filter may be enabled by an override, so it stays in the chain.
    Some(match config {
        HttpFilterConfig::StatefulSession(_) if proto.disabled => HttpFilterConfig::StatefulSession(None),
        HttpFilterConfig::Fault(_) if proto.disabled => HttpFilterConfig::Fault(Arc::default()),
        config => config,
    })
}

/// The overrides of a virtual host, route or weighted cluster.
pub(crate) fn filter_overrides<'p>(
    at: &Field<'_>,
    protos: impl IntoIterator<Item = (&'p String, &'p Any)>,
) -> FilterOverrides {
    // In order of their names, so that violations are deterministic.
    let protos: BTreeMap<_, _> = protos.into_iter().collect();
    let overrides = protos.into_iter().filter_map(|(name, any)| {
        let at = at.key(name);
        at.require_text(name);
        Some((name.as_str().into(), filter_override(&at, any)?))
    });
    overrides.collect()
}

fn filter_override(at: &Field<'_>, any: &Any) -> Option<HttpFilterConfig> {
    let extension = Extension::read(at, Some(any))?;
    // A39: FilterConfig wraps the override and says whether its type may be unknown.
    if extension.type_name != FilterConfig::full_name() {
        return parse(at, &extension, &OVERRIDES, UnknownType::Rejected);
    }
    let wrapper: FilterConfig = extension.decode(at)?;
    let at = at.field("config");
    let extension = Extension::read(&at, wrapper.config.as_ref())?;
    let config = parse(&at, &extension, &OVERRIDES, UnknownType::of(wrapper.is_optional))?;
    // As in C-core, the config must be present and valid even if the filter is disabled.
    Some(if wrapper.disabled { HttpFilterConfig::Disabled } else { config })
}

/// The treatment of a filter of an unknown type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownType {
    Rejected,
    Ignored,
}

impl UnknownType {
    fn of(is_optional: bool) -> Self {
        if is_optional { Self::Ignored } else { Self::Rejected }
    }
}

fn parse(
    at: &Field<'_>,
    extension: &Extension<'_>,
    known: &[(&str, Parser)],
    unknown: UnknownType,
) -> Option<HttpFilterConfig> {
    match known.iter().find(|(type_name, _)| *type_name == extension.type_name) {
        Some((_, parser)) => parser(at, extension),
        None => {
            // A39: an unknown type is rejected, or ignored if it is optional.
            if unknown == UnknownType::Rejected {
                // A39, A41: the same for filters that are supported on servers only.
                let on = if SERVER_FILTERS.contains(&&*extension.type_name) { " on clients" } else { "" };
                at.reject(format!("the filter type {} is not supported{on}", extension.type_name));
            }
            None
        }
    }
}

fn router(at: &Field<'_>, extension: &Extension<'_>) -> Option<HttpFilterConfig> {
    // A39: all fields of the router are ignored.
    extension.decode::<http::router::v3::Router>(at).map(|_| HttpFilterConfig::Router)
}

fn ignored<M: Message + Default>(at: &Field<'_>, extension: &Extension<'_>) -> Option<HttpFilterConfig> {
    let type_url = format!("type.googleapis.com/{}", extension.type_name).into();
    extension.decode::<M>(at).map(|_| HttpFilterConfig::Ignored { type_url })
}
