//! How many elements the large lists of a message have, counted without decoding it: an element of two bytes becomes a
//! hundred when decoded, so what is beyond a limit must be found before.

use super::ResourceType;
use super::protobuf::{Malformed, Reader};
use crate::Limits;

/// The shortest element of a list: its key and a length of zero.
const SHORTEST: usize = 2;

/// A field to look into.
struct Nested {
    number: u32,
    /// Whether each occurrence is an element.
    kind: Kind,
    fields: &'static [Nested],
}

enum Kind {
    List,
    Message,
}

const fn list(number: u32, fields: &'static [Nested]) -> Nested {
    Nested { number, kind: Kind::List, fields }
}

const fn message(number: u32, fields: &'static [Nested]) -> Nested {
    Nested { number, kind: Kind::Message, fields }
}

/// Of a ClusterLoadAssignment: localities, their endpoints, their additional addresses; drop categories.
const ENDPOINTS: &[Nested] =
    &[list(2, &[list(2, &[message(1, &[list(4, &[])])])]), message(4, &[list(2, &[])])];

/// Of a RouteConfiguration: virtual hosts, their routes, their header matchers, weighted clusters and hash policies.
const ROUTES: &[Nested] = &[list(
    2,
    &[list(3, &[message(1, &[list(6, &[])]), message(2, &[message(3, &[list(1, &[])]), list(15, &[])])])],
)];

/// Of a Listener: the same of the routes inside of its connection manager, which is the value of an Any.
const INLINE_ROUTES: &[Nested] = &[message(19, &[message(1, &[message(2, &[message(4, ROUTES)])])])];

/// Of a ClusterConfig: the clusters below an aggregate.
const CLUSTERS: &[Nested] = &[list(1, &[])];

/// Of a Cluster: the same in the config of its cluster type, which is the value of an Any.
const INLINE_CLUSTERS: &[Nested] = &[message(38, &[message(2, &[message(2, CLUSTERS)])])];

/// Of a LoadStatsResponse: the clusters whose load is asked for.
const REPORTED_CLUSTERS: &[Nested] = &[list(1, &[])];

/// Of a DiscoveryResponse: resources, and errors of resources.
const RESOURCES: &[Nested] = &[list(2, &[]), list(7, &[])];

/// What is wrong with the resource, if it has more elements than the limit.
pub(super) fn excess(of: ResourceType, value: &[u8], limits: &Limits) -> Option<(&'static str, String)> {
    let (field, lists, what, limit) = match of {
        ResourceType::ClusterLoadAssignment => {
            ("endpoints", ENDPOINTS, "endpoints", limits.endpoints_per_assignment)
        }
        ResourceType::RouteConfiguration => {
            ("virtual_hosts", ROUTES, "routes", limits.routes_per_configuration)
        }
        ResourceType::Listener => ("api_listener", INLINE_ROUTES, "routes", limits.routes_per_configuration),
        ResourceType::Cluster if value.len() > limits.cluster_bytes => {
            let (length, limit) = (value.len(), limits.cluster_bytes);
            return Some(("", format!("{length} bytes, more than the limit of {limit}")));
        }
        ResourceType::Cluster => {
            ("cluster_type.typed_config", INLINE_CLUSTERS, "clusters", limits.clusters_per_aggregate)
        }
        ResourceType::AggregateClusterConfig => {
            ("clusters", CLUSTERS, "clusters", limits.clusters_per_aggregate)
        }
    };
    exceeds(value, lists, limit).then(|| (field, format!("more than {limit} {what}, the limit")))
}

/// Whether a DiscoveryResponse has more resources than the limit.
pub(crate) fn has_more_resources(response: &[u8], limit: usize) -> bool {
    exceeds(response, RESOURCES, limit)
}

/// Whether a LoadStatsResponse names more clusters than the limit.
pub(crate) fn has_more_reported_clusters(response: &[u8], limit: usize) -> bool {
    exceeds(response, REPORTED_CLUSTERS, limit)
}

fn exceeds(bytes: &[u8], lists: &[Nested], limit: usize) -> bool {
    // So few bytes cannot have so many elements, which is the rule.
    if bytes.len() / SHORTEST <= limit {
        return false;
    }
    let mut left = limit;
    // Those who decode it stop where it is malformed, too.
    matches!(count(bytes, lists, &mut left), Err(Stop::Excess))
}

enum Stop {
    Excess,
    Malformed,
}

impl From<Malformed> for Stop {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

fn count(bytes: &[u8], lists: &[Nested], left: &mut usize) -> Result<(), Stop> {
    let mut reader = Reader::new(bytes);
    while let Some(key) = reader.next_key()? {
        let Some(nested) = lists.iter().find(|nested| nested.number == key.number()) else {
            reader.skip(key)?;
            continue;
        };
        let inner = reader.bytes(key)?;
        if let Kind::List = nested.kind {
            *left = left.checked_sub(1).ok_or(Stop::Excess)?;
        }
        if !nested.fields.is_empty() {
            // What is malformed inside may be another message or be replaced later; what follows is counted all the same.
            match count(inner, nested.fields, left) {
                Err(Stop::Excess) => return Err(Stop::Excess),
                Ok(()) | Err(Stop::Malformed) => {}
            }
        }
    }
    Ok(())
}
