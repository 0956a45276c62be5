//! Counts the elements of a message's large lists without decoding it: an element of two bytes takes a hundred when
//! decoded, so limits must be checked first.

use super::ResourceType;
use super::protobuf::{Malformed, Reader};
use crate::Limits;

/// The shortest element of a list: its key and a length of zero.
const SHORTEST: usize = 2;

/// A field that may contain list elements.
struct Nested {
    number: u32,
    /// Whether each occurrence counts as an element.
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

/// In a ClusterLoadAssignment: localities, their endpoints, additional addresses; drop categories.
const ENDPOINTS: &[Nested] =
    &[list(2, &[list(2, &[message(1, &[list(4, &[])])])]), message(4, &[list(2, &[])])];

/// In a RouteConfiguration: virtual hosts, their routes, header matchers, weighted clusters and hash policies.
const ROUTES: &[Nested] = &[list(
    2,
    &[list(3, &[message(1, &[list(6, &[])]), message(2, &[message(3, &[list(1, &[])]), list(15, &[])])])],
)];

/// In a Listener: the routes inside its connection manager, which is the value of an Any.
const INLINE_ROUTES: &[Nested] = &[message(19, &[message(1, &[message(2, &[message(4, ROUTES)])])])];

/// Of a ClusterConfig: the clusters below an aggregate.
const CLUSTERS: &[Nested] = &[list(1, &[])];

/// Of Metadata: its maps.
const METADATA: &[Nested] = &[list(1, &[]), list(2, &[])];

/// Of a CertificateValidationContext: SAN matchers, and what is not supported.
const VALIDATION: &[Nested] = &[list(2, &[]), list(3, &[]), list(9, &[]), list(15, &[])];

/// Of an UpstreamTlsContext: the lists of its parameters, certificates, protocols and validation contexts.
const TLS: &[Nested] = &[message(
    1,
    &[
        message(1, &[list(3, &[]), list(4, &[]), list(5, &[])]),
        list(2, &[]),
        list(4, &[]),
        list(6, &[]),
        message(3, VALIDATION),
        message(8, &[message(1, VALIDATION)]),
    ],
)];

/// Of a Cluster: all its lists. Those of an aggregate are in the config of its cluster type, and those of TLS settings in
/// the config of its transport socket, both of which are the value of an Any.
const CLUSTER: &[Nested] = &[
    message(38, &[message(2, &[message(2, CLUSTERS)])]),
    list(8, &[]),
    list(18, &[]),
    list(36, &[]),
    list(40, &[]),
    list(43, &[]),
    list(57, &[]),
    message(10, &[list(1, &[]), list(2, &[])]),
    message(19, &[list(24, &[])]),
    message(22, &[list(3, &[])]),
    message(24, &[message(3, &[message(2, TLS)])]),
    message(25, METADATA),
    message(33, ENDPOINTS),
    message(41, &[list(1, &[])]),
];

/// Of a RetryPolicy: predicates and headers.
const RETRY: &[Nested] = &[list(5, &[]), list(9, &[]), list(10, &[]), list(12, &[])];

/// Of a Route: what is not in [`ROUTES`]. In its match, its action with weighted clusters and retries, and itself.
const OTHER_OF_ROUTE: &[Nested] = &[
    message(1, &[list(7, &[]), list(13, &[]), list(16, &[]), list(17, &[])]),
    message(
        2,
        &[
            list(13, &[]),
            list(25, &[]),
            list(30, &[]),
            message(
                3,
                &[message(
                    1,
                    &[
                        list(4, &[]),
                        list(5, &[]),
                        list(6, &[]),
                        list(9, &[]),
                        list(10, &[]),
                        message(3, METADATA),
                    ],
                )],
            ),
            message(4, METADATA),
            message(9, RETRY),
        ],
    ),
    message(4, METADATA),
    list(9, &[]),
    list(10, &[]),
    list(11, &[]),
    list(12, &[]),
    list(13, &[]),
    list(21, &[]),
];

/// Of a VirtualHost: the same, and its own lists.
const OTHER_OF_HOST: &[Nested] = &[
    message(3, OTHER_OF_ROUTE),
    list(2, &[]),
    list(5, &[]),
    list(6, &[]),
    list(7, &[]),
    list(10, &[]),
    list(11, &[]),
    list(13, &[]),
    list(15, &[]),
    list(22, &[]),
    list(26, &[]),
    message(16, RETRY),
    message(24, METADATA),
];

/// Of a RouteConfiguration: the same, and its own lists.
const OTHER_OF_ROUTES: &[Nested] = &[
    message(2, OTHER_OF_HOST),
    list(3, &[]),
    list(4, &[]),
    list(5, &[]),
    list(6, &[]),
    list(8, &[]),
    list(12, &[]),
    list(13, &[]),
    list(16, &[]),
    list(19, &[]),
];

/// Of a Listener: the same inside of its connection manager, whose lists count, and its own.
const OTHER_OF_LISTENER: &[Nested] = &[
    message(
        19,
        &[message(
            1,
            &[message(
                2,
                &[
                    message(4, OTHER_OF_ROUTES),
                    list(5, &[]),
                    list(13, &[]),
                    list(23, &[]),
                    list(46, &[]),
                    list(52, &[]),
                    message(7, &[list(8, &[])]),
                    message(38, &[list(1, &[])]),
                ],
            )],
        )],
    ),
    list(3, &[list(3, &[])]),
    list(9, &[]),
    list(13, &[]),
    list(22, &[]),
    list(33, &[]),
    message(6, METADATA),
];

/// Of a LoadStatsResponse: the clusters whose load is asked for.
const REPORTED_CLUSTERS: &[Nested] = &[list(1, &[])];

/// In a DiscoveryResponse: resources, and errors of resources.
const RESOURCES: &[Nested] = &[list(2, &[]), list(7, &[])];

/// The path and text of the violation, if the resource has more elements than the limit.
pub(super) fn excess(of: ResourceType, value: &[u8], limits: &Limits) -> Option<(&'static str, String)> {
    if of == ResourceType::Cluster && value.len() > limits.cluster_bytes {
        let (length, limit) = (value.len(), limits.cluster_bytes);
        return Some(("", format!("{length} bytes, more than the limit of {limit}")));
    }
    let other = limits.other_elements;
    let (field, lists, what, limit) = match of {
        ResourceType::ClusterLoadAssignment => {
            ("endpoints", ENDPOINTS, "endpoints", limits.endpoints_per_assignment)
        }
        ResourceType::RouteConfiguration if exceeds(value, OTHER_OF_ROUTES, other) => {
            return Some(("", format!("more than {other} elements besides routes, the limit")));
        }
        ResourceType::Listener if exceeds(value, OTHER_OF_LISTENER, other) => {
            return Some(("", format!("more than {other} elements besides routes, the limit")));
        }
        ResourceType::RouteConfiguration => {
            ("virtual_hosts", ROUTES, "routes", limits.routes_per_configuration)
        }
        ResourceType::Listener => ("api_listener", INLINE_ROUTES, "routes", limits.routes_per_configuration),
        ResourceType::Cluster => ("", CLUSTER, "elements", limits.elements_per_cluster),
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
    // Fast path: so few bytes cannot contain that many elements.
    if bytes.len() / SHORTEST <= limit {
        return false;
    }
    let mut left = limit;
    // Decoding stops where the message is malformed, too.
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
            // A malformed part may be another type of message, or be replaced later; the rest is counted anyway.
            match count(inner, nested.fields, left) {
                Err(Stop::Excess) => return Err(Stop::Excess),
                Ok(()) | Err(Stop::Malformed) => {}
            }
        }
    }
    Ok(())
}
