//! The resources of a control plane, asked for as a client does: listeners, and then what they lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use proxyless_control_plane::check::Item;
use proxyless_xds::resource::{
    ClusterKind, ClusterSpecifier, DecodeContext, ListenerKind, Resource, ResourceType, RouteConfiguration,
    RouteSource, decode,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// A control plane that has sent nothing for so long has sent everything.
const QUIET: Duration = Duration::from_secs(2);

/// The resources; `None` if the address does not serve ADS.
pub(super) async fn resources(
    address: &str,
    node_id: &str,
    listeners: &[String],
    cx: &DecodeContext,
) -> Result<Option<Vec<Item>>, Box<dyn Error>> {
    let name = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let endpoint = Endpoint::from_shared(format!("http://{name}"))?.connect_timeout(CONNECT);
    let channel = endpoint.connect().await.map_err(|error| {
        let mut cause: &dyn Error = &error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        format!("cannot connect to {name}: {cause}")
    })?;
    let (requests, outgoing) = mpsc::unbounded_channel();
    let mut walk = Walk { requests, node_id, cx, asked: BTreeMap::new(), found: BTreeMap::new() };
    walk.ask(ResourceType::Listener, listeners.iter().cloned());
    if listeners.is_empty() {
        walk.ask(ResourceType::Cluster, []);
    }
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    let stream = client.stream_aggregated_resources(UnboundedReceiverStream::new(outgoing));
    let stream = tokio::time::timeout(CONNECT, stream).await;
    let mut responses = match stream.map_err(|_| format!("{name} did not answer within {CONNECT:?}"))? {
        Ok(stream) => stream.into_inner(),
        Err(status) if status.code() == Code::Unimplemented => return Ok(None),
        Err(status) => return Err(explain(name, &status).into()),
    };
    loop {
        match tokio::time::timeout(QUIET, responses.message()).await {
            Ok(Ok(Some(response))) => walk.response(response),
            Ok(Err(status)) if status.code() == Code::Unimplemented => return Ok(None),
            Ok(Err(status)) => return Err(explain(name, &status).into()),
            Ok(Ok(None)) | Err(_) => break,
        }
        if walk.is_complete() {
            break;
        }
    }
    Ok(Some(walk.found.into_values().collect()))
}

fn explain(name: &str, status: &Status) -> String {
    format!("{name} does not answer as a control plane: {} ({:?})", status.message(), status.code())
}

struct Walk<'a> {
    requests: mpsc::UnboundedSender<DiscoveryRequest>,
    node_id: &'a str,
    cx: &'a DecodeContext,
    /// The subscriptions; an empty set is a wildcard.
    asked: BTreeMap<ResourceType, BTreeSet<String>>,
    found: BTreeMap<(ResourceType, String), Item>,
}

impl Walk<'_> {
    /// Subscribes to more names of a type.
    fn ask(&mut self, kind: ResourceType, names: impl IntoIterator<Item = String>) {
        let is_first = !self.asked.contains_key(&kind);
        let asked = self.asked.entry(kind).or_default();
        let is_wildcard = !is_first && asked.is_empty();
        let before = asked.len();
        asked.extend(names);
        if is_wildcard {
            // All resources of the type come anyway.
            asked.clear();
        }
        if is_first || asked.len() != before {
            self.send(kind, String::new(), String::new());
        }
    }

    fn send(&self, kind: ResourceType, version_info: String, response_nonce: String) {
        let node = Node {
            id: self.node_id.to_owned(),
            user_agent_name: "proxyless check".to_owned(),
            ..Default::default()
        };
        let names = self.asked.get(&kind).into_iter().flatten().cloned();
        // A stream that has ended is noticed by its reader.
        let _ = self.requests.send(DiscoveryRequest {
            node: Some(node),
            type_url: kind.type_url().to_owned(),
            resource_names: names.collect(),
            version_info,
            response_nonce,
            ..Default::default()
        });
    }

    fn response(&mut self, response: DiscoveryResponse) {
        let Some(kind) = ResourceType::from_type_url(&response.type_url) else { return };
        let mut valid = Vec::new();
        for (i, value) in response.resources.into_iter().enumerate() {
            let decoded = decode(kind, &value.type_url, &value.value, self.cx);
            let name = decoded.name.unwrap_or_else(|| format!("(resource {i} without a name)"));
            self.found.insert((kind, name.clone()), Item::new(kind.type_url(), name.clone(), value));
            valid.extend(decoded.resource.ok().map(|resource| (name, resource)));
        }
        self.send(kind, response.version_info, response.nonce);
        for (name, resource) in valid {
            self.follow(&name, &resource);
        }
    }

    fn follow(&mut self, name: &str, resource: &Resource) {
        match resource {
            Resource::Listener(listener) => match &listener.kind {
                ListenerKind::Api(manager) => match &manager.routes {
                    RouteSource::Rds(name) => self.ask(ResourceType::RouteConfiguration, [name.to_string()]),
                    RouteSource::Inline(routes) => self.clusters(routes),
                },
                ListenerKind::Socket => {}
            },
            Resource::RouteConfiguration(routes) => self.clusters(routes),
            Resource::Cluster(cluster) => match &cluster.kind {
                ClusterKind::Eds { service_name } => {
                    let wanted = service_name.as_deref().unwrap_or(name).to_owned();
                    self.ask(ResourceType::ClusterLoadAssignment, [wanted]);
                }
                ClusterKind::Aggregate(config) => {
                    self.ask(ResourceType::Cluster, config.clusters.iter().map(ToString::to_string));
                }
                ClusterKind::AggregateResource { name } => {
                    self.ask(ResourceType::AggregateClusterConfig, [name.to_string()]);
                }
                _ => {}
            },
            Resource::AggregateClusterConfig(config) => {
                self.ask(ResourceType::Cluster, config.clusters.iter().map(ToString::to_string));
            }
            Resource::ClusterLoadAssignment(_) => {}
        }
    }

    fn clusters(&mut self, routes: &RouteConfiguration) {
        let mut names = Vec::new();
        for action in
            routes.virtual_hosts.iter().flat_map(|host| &host.routes).filter_map(|r| r.action.as_ref())
        {
            match &action.cluster {
                ClusterSpecifier::Cluster(name) => names.push(name.to_string()),
                ClusterSpecifier::Weighted(clusters) => {
                    names.extend(clusters.iter().map(|cluster| cluster.name.to_string()));
                }
            }
        }
        self.ask(ResourceType::Cluster, names);
    }

    /// Whether every name has arrived. With a wildcard that is not known.
    fn is_complete(&self) -> bool {
        self.asked.iter().all(|(kind, names)| {
            !names.is_empty() && names.iter().all(|name| self.found.contains_key(&(*kind, name.clone())))
        })
    }
}
