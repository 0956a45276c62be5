//! Counts the elements of a message's large lists without decoding it: an element of two bytes takes a hundred when
//! decoded, so limits must be checked first.

use super::ResourceType;
use super::protobuf::{Malformed, Reader};
use crate::Limits;
use Nested::{List, Lists, Message};

/// The shortest element of a list: its key and a length of zero.
const SHORTEST: usize = 2;

/// Fields of a message that are lists, or contain lists.
enum Nested {
    /// Lists whose elements contain no lists.
    Lists(&'static [u32]),
    /// A list whose elements contain lists.
    List(u32, &'static [Nested]),
    /// A message that contains lists, and is not an element itself.
    Message(u32, &'static [Nested]),
}

impl Nested {
    fn has(&self, number: u32) -> bool {
        match self {
            Lists(numbers) => numbers.contains(&number),
            List(own, _) | Message(own, _) => *own == number,
        }
    }
}

/// In a ClusterLoadAssignment: localities, their endpoints, additional addresses; drop categories.
const ENDPOINTS: &[Nested] =
    &[List(2, &[List(2, &[Message(1, &[Lists(&[4])])])]), Message(4, &[Lists(&[2])])];

/// In a RouteConfiguration: virtual hosts, their routes, header matchers, weighted clusters and hash policies.
const ROUTES: &[Nested] = &[List(
    2,
    &[List(3, &[Message(1, &[Lists(&[6])]), Message(2, &[Message(3, &[Lists(&[1])]), Lists(&[15])])])],
)];

/// In a Listener: the routes inside its connection manager, which is the value of an Any.
const INLINE_ROUTES: &[Nested] = &[Message(19, &[Message(1, &[Message(2, &[Message(4, ROUTES)])])])];

/// Of a ClusterConfig: the clusters below an aggregate.
const CLUSTERS: &[Nested] = &[Lists(&[1])];

/// Of Metadata: its maps.
const METADATA: &[Nested] = &[Lists(&[1, 2])];

/// Of a CertificateValidationContext: SAN matchers, and unsupported lists.
const VALIDATION: &[Nested] = &[Lists(&[2, 3, 9, 15])];

/// Of an UpstreamTlsContext: the lists of its parameters, certificates, protocols and validation contexts.
const TLS: &[Nested] = &[Message(
    1,
    &[
        Message(1, &[Lists(&[3, 4, 5])]),
        Lists(&[2, 4, 6]),
        Message(3, VALIDATION),
        Message(8, &[Message(1, VALIDATION)]),
    ],
)];

/// Of the config of a transport socket: TLS settings, or a wrapper (gRFC A86) around another transport socket with these.
const TRANSPORT_SOCKET: &[Nested] = &[Message(1, &[Message(3, &[Message(2, TLS)])])];

/// Of a Cluster: all its lists. Those of an aggregate are in the config of its cluster type, and those of TLS settings in
/// the config of its transport socket, both of which are the value of an Any.
const CLUSTER: &[Nested] = &[
    Message(38, &[Message(2, &[Message(2, CLUSTERS)])]),
    Lists(&[8, 18, 36, 40, 43, 57]),
    Message(10, &[Lists(&[1, 2])]),
    Message(19, &[Lists(&[24])]),
    Message(22, &[Lists(&[3])]),
    Message(24, &[Message(3, &[Message(2, TLS), Message(2, TRANSPORT_SOCKET)])]),
    Message(25, METADATA),
    Message(33, ENDPOINTS),
    Message(41, &[Lists(&[1])]),
];

/// Of a RetryPolicy: predicates and headers.
const RETRY: &[Nested] = &[Lists(&[5, 9, 10, 12])];

/// Of a Route: the lists that are not in [`ROUTES`], in its match, its action with weighted clusters and retries, and
/// itself.
const OTHER_OF_ROUTE: &[Nested] = &[
    Message(1, &[Lists(&[7, 13, 16, 17])]),
    Message(
        2,
        &[
            Lists(&[13, 25, 30]),
            Message(3, &[Message(1, &[Lists(&[4, 5, 6, 9, 10]), Message(3, METADATA)])]),
            Message(4, METADATA),
            Message(9, RETRY),
        ],
    ),
    Message(4, METADATA),
    Lists(&[9, 10, 11, 12, 13, 21]),
];

/// Of a VirtualHost: the same, and its own lists.
const OTHER_OF_HOST: &[Nested] = &[
    Message(3, OTHER_OF_ROUTE),
    Lists(&[2, 5, 6, 7, 10, 11, 13, 15, 22, 26]),
    Message(16, RETRY),
    Message(24, METADATA),
];

/// Of a RouteConfiguration: the same, and its own lists.
const OTHER_OF_ROUTES: &[Nested] = &[Message(2, OTHER_OF_HOST), Lists(&[3, 4, 5, 6, 8, 12, 13, 16, 19])];

/// Of a Listener: the same inside of its connection manager, whose lists count, and its own.
const OTHER_OF_LISTENER: &[Nested] = &[
    Message(
        19,
        &[Message(
            1,
            &[Message(
                2,
                &[
                    Message(4, OTHER_OF_ROUTES),
                    Lists(&[5, 13, 23, 46, 52]),
                    Message(7, &[Lists(&[8])]),
                    Message(38, &[Lists(&[1])]),
                ],
            )],
        )],
    ),
    List(3, &[Lists(&[3])]),
    Lists(&[9, 13, 22, 33]),
    Message(6, METADATA),
];

/// Of a LoadStatsResponse: the clusters whose load is asked for.
const REPORTED_CLUSTERS: &[Nested] = &[Lists(&[1])];

/// In a DiscoveryResponse: resources, and errors of resources.
const RESOURCES: &[Nested] = &[Lists(&[2, 7])];

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
    matches!(uses_up(bytes, lists, &mut left), Ok(true))
}

/// Whether the message has more than `left` elements. Reduces `left` by those that it has.
fn uses_up(bytes: &[u8], fields: &[Nested], left: &mut usize) -> Result<bool, Malformed> {
    let mut reader = Reader::new(bytes);
    while let Some(key) = reader.next_key()? {
        // The value of an Any may be one of several messages.
        let mut nested = fields.iter().filter(|nested| nested.has(key.number())).peekable();
        if nested.peek().is_none() {
            reader.skip(key)?;
            continue;
        }
        let inner = reader.bytes(key)?;
        for nested in nested {
            if !matches!(nested, Message(..)) {
                let Some(fewer) = left.checked_sub(1) else { return Ok(true) };
                *left = fewer;
            }
            let (List(_, fields) | Message(_, fields)) = nested else { continue };
            // A malformed part may be another type of message, or be replaced later; the rest is counted anyway.
            if let Ok(true) = uses_up(inner, fields, left) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
