//! The resources of a control plane, and selectors of resources.

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use envoy_types::pb::google::protobuf::Any;
use prost::Name;

/// Type URL of a Listener.
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of a RouteConfiguration.
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
/// Type URL of a Cluster.
pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of a ClusterLoadAssignment.
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of the list of children of an aggregate cluster (A99).
pub const AGGREGATE: &str = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";

/// A resource of a control plane. Listeners, route configurations, clusters and endpoint assignments convert into one;
/// the functions here create all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    pub(crate) type_url: String,
    pub(crate) name: String,
    pub(crate) value: Any,
}

impl Resource {
    /// A resource of any message type, with this name.
    pub fn new<M: Name>(name: impl Into<String>, message: &M) -> Self {
        Self::raw(M::type_url(), name, pack(message))
    }

    /// A message inside a discovery `Resource`, which has the name. Required for types without a name field.
    pub fn wrapped<M: Name>(name: impl Into<String>, message: &M) -> Self {
        let name = name.into();
        let wrapper = Wrapper { name: name.clone(), resource: Some(pack(message)), ..Default::default() };
        Self::raw(M::type_url(), name, pack(&wrapper))
    }

    /// A resource with any content, sent to subscribers of this type and name.
    pub fn raw(type_url: impl Into<String>, name: impl Into<String>, value: Any) -> Self {
        Self { type_url: type_url.into(), name: name.into(), value }
    }

    /// A resource that cannot be decoded.
    pub fn garbage(type_url: impl Into<String>, name: impl Into<String>) -> Self {
        let type_url = type_url.into();
        let value = Any { type_url: type_url.clone(), value: vec![0xff; 4] };
        Self::raw(type_url, name, value)
    }

    /// The type URL of subscriptions.
    pub fn type_url(&self) -> &str {
        &self.type_url
    }

    /// The name of subscriptions.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The content.
    pub fn value(&self) -> &Any {
        &self.value
    }
}

impl From<Listener> for Resource {
    fn from(message: Listener) -> Self {
        Self::new(message.name.clone(), &message)
    }
}

impl From<RouteConfiguration> for Resource {
    fn from(message: RouteConfiguration) -> Self {
        Self::new(message.name.clone(), &message)
    }
}

impl From<Cluster> for Resource {
    fn from(message: Cluster) -> Self {
        Self::new(message.name.clone(), &message)
    }
}

impl From<ClusterLoadAssignment> for Resource {
    fn from(message: ClusterLoadAssignment) -> Self {
        Self::new(message.cluster_name.clone(), &message)
    }
}

/// All resources of a type, or one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selector {
    /// Every resource of this type URL.
    Type(String),
    /// The resource of this type URL and name.
    Resource(String, String),
}

impl From<&str> for Selector {
    fn from(type_url: &str) -> Self {
        Self::Type(type_url.into())
    }
}

impl From<(&str, &str)> for Selector {
    fn from((type_url, name): (&str, &str)) -> Self {
        Self::Resource(type_url.into(), name.into())
    }
}

/// A message as an `Any`.
pub fn pack<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}
