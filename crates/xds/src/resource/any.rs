//! One resource of a response: unwrapping, type check, decoding.

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy_types::pb::envoy::config;
use envoy_types::pb::envoy::extensions::clusters::aggregate::v3::ClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use prost::{Message, Name};
use proxyless_sans_io::Interner;

use super::extension::message_name;
use super::field;
use super::lb_custom::CustomPolicies;
use super::named::decode_named;
use super::{Locality, Resource, ResourceType, Violations, cluster, elements, endpoint};
use crate::{Gates, Limits};

/// The parameters of validation other than the bytes.
#[derive(Clone, Debug, Default)]
pub struct DecodeContext {
    /// Feature gates, which determine the messages that are accepted.
    pub gates: Gates,
    /// Whether the server has the feature `trusted_xds_server`, without which `auto_host_rewrite` is ignored (gRFC
    /// A81).
    pub trusted_xds_server: bool,
    /// Limits on the size of resources.
    pub limits: Limits,
    /// The certificate provider instances that Clusters may refer to (gRFC A29). `None` if the client cannot use TLS:
    /// then a Cluster with TLS settings is rejected, because its endpoints must not be reached in plaintext.
    pub certificate_providers: Option<Arc<BTreeSet<String>>>,
    /// The load balancing policies of the application (gRFC A52), if it has any.
    pub policies: Option<Arc<dyn CustomPolicies>>,
    /// The localities of all resources, which are few.
    pub localities: Interner<Locality>,
}

/// The result of decoding one resource of a response.
#[derive(Debug)]
pub struct Decoded {
    /// The resource's name, if it is readable, even if the resource is invalid.
    pub name: Option<String>,
    /// The resource, or its violations.
    pub resource: Result<Resource, Violations>,
}

/// Decodes and validates one element of `DiscoveryResponse.resources`.
///
/// `type_url` and `value` are those of the element's `Any`; it may be wrapped in the discovery `Resource` message
/// . `expected` is the type of the response; any other type is a violation.
#[must_use]
pub fn decode(expected: ResourceType, type_url: &str, value: &[u8], cx: &DecodeContext) -> Decoded {
    match decode_update(expected, type_url, value, cx, &|_| None) {
        Update::Resource(decoded) => decoded,
        Update::Heartbeat(name) => {
            Decoded::bad(Some(name), "resource", "must be set in the Resource wrapper")
        }
    }
}

/// The kinds of elements of a response.
#[derive(Debug)]
pub(crate) enum Update {
    /// A resource, valid or not.
    Resource(Decoded),
    /// The name of a resource whose time to live starts again: a wrapper without a resource.
    Heartbeat(String),
}

/// Looks up the version in use of a resource by name.
pub(crate) type KnownResources<'k> = dyn Fn(&str) -> Option<&'k Resource> + 'k;

/// Like [`decode`], for an update of a resource: unchanged parts may be shared with the version in use.
pub(crate) fn decode_update(
    expected: ResourceType,
    type_url: &str,
    value: &[u8],
    cx: &DecodeContext,
    known: &KnownResources<'_>,
) -> Update {
    // a resource of any type may be wrapped, once.
    if message_name(type_url) != Wrapper::full_name() {
        let element = Unwrapped { type_url, value, wrapper_name: None };
        return Update::Resource(decode_unwrapped(expected, element, cx, known));
    }
    let wrapper = match Wrapper::decode(value) {
        Ok(wrapper) => wrapper,
        Err(error) => {
            let why = format!("the Resource wrapper does not decode: {error}");
            return Update::Resource(Decoded::bad(None, "", why));
        }
    };
    let name = Some(wrapper.name).filter(|name| !name.is_empty());
    match (wrapper.resource, name) {
        (Some(inner), name) => {
            let element = Unwrapped { type_url: &inner.type_url, value: &inner.value, wrapper_name: name };
            Update::Resource(decode_unwrapped(expected, element, cx, known))
        }
        // xDS TTL: a wrapper with only a name is a heartbeat.
        (None, Some(name)) => Update::Heartbeat(name),
        (None, None) => {
            Update::Resource(Decoded::bad(None, "resource", "must be set in the Resource wrapper"))
        }
    }
}

/// An element of a response, outside its wrapper.
struct Unwrapped<'a> {
    type_url: &'a str,
    value: &'a [u8],
    wrapper_name: Option<String>,
}

fn decode_unwrapped(
    expected: ResourceType,
    element: Unwrapped<'_>,
    cx: &DecodeContext,
    known: &KnownResources<'_>,
) -> Decoded {
    let Unwrapped { type_url, value, wrapper_name } = element;
    // the type must be that of the response.
    if message_name(type_url) != message_name(expected.type_url()) {
        let why = format!("{type_url:?} in a response of type {:?}", expected.type_url());
        return Decoded::bad(wrapper_name, "type_url", why);
    }
    if let Some((path, why)) = elements::excess(expected, value, &cx.limits) {
        // A99-19: a ClusterConfig has no name of its own.
        let name = wrapper_name
            .or_else(|| own_name(value).filter(|_| expected != ResourceType::AggregateClusterConfig));
        return Decoded::bad(name, path, why);
    }
    match expected {
        ResourceType::Listener => {
            decode_named(config::listener::v3::Listener::decode(value), wrapper_name, cx, known)
        }
        ResourceType::RouteConfiguration => {
            decode_named(config::route::v3::RouteConfiguration::decode(value), wrapper_name, cx, known)
        }
        ResourceType::Cluster => {
            decode_named(config::cluster::v3::Cluster::decode(value), wrapper_name, cx, known)
        }
        ResourceType::ClusterLoadAssignment => {
            decode_named(endpoint::in_place::ClusterLoadAssignment::read(value), wrapper_name, cx, known)
        }
        ResourceType::AggregateClusterConfig => decode_cluster_config(value, wrapper_name, cx),
    }
}

/// The name of a resource whose first field is its name, without decoding the rest.
fn own_name(value: &[u8]) -> Option<String> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
    }
    Named::decode(value).ok().map(|named| named.name).filter(|name| !name.is_empty())
}

/// A99-05: the rules are those of the list inside a Cluster.
fn decode_cluster_config(value: &[u8], wrapper_name: Option<String>, cx: &DecodeContext) -> Decoded {
    let message = match ClusterConfig::decode(value) {
        Ok(message) => message,
        Err(error) => return Decoded::bad(wrapper_name, "", format!("does not decode: {error}")),
    };
    let resource = field::validate(cx, |at| {
        // A99-19: the message itself has no name.
        if wrapper_name.is_none() {
            at.reject(format!(
                "{} has no name of its own: it must come in a Resource wrapper that names it",
                ClusterConfig::NAME
            ));
        }
        let config = cluster::aggregate_config(at, &message)?;
        Some(Resource::AggregateClusterConfig(Arc::new(config)))
    });
    Decoded { name: wrapper_name, resource }
}

impl Decoded {
    pub(super) fn bad(name: Option<String>, path: &str, why: impl Into<String>) -> Self {
        Self { name, resource: Err(Violations::one(path, why)) }
    }
}
