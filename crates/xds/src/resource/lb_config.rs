//! Load balancing policies in a cluster's configuration (gRFC A52).

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::extensions::load_balancing_policies as policies;
use envoy_types::pb::google::protobuf::{UInt32Value, UInt64Value};
use policies::ring_hash::v3::ring_hash::HashFunction;
use wire::cluster::ring_hash_lb_config::HashFunction as LegacyHashFunction;
use wire::cluster::{LbConfig, LbPolicy as LegacyPolicy};

use super::extension::{self, Extension, ExtensionConfig};
use super::field::Field;
use super::lb_custom::CustomPolicy;
use super::lb_json;
use super::lb_weighted::{self, WeightedRoundRobin};

/// A validated policy. Unknown policies in a list are skipped; a list without a known one is a violation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LbPolicy {
    /// Picks localities by weight; the child picks within a locality.
    WrrLocality(Box<LbPolicy>),
    /// Round robin over endpoints.
    RoundRobin,
    /// Ketama-style consistent hashing (gRFC A42).
    RingHash {
        /// The minimum number of entries in the ring.
        min_ring_size: u64,
        /// The maximum number of entries in the ring.
        max_ring_size: u64,
        /// The request header whose value is hashed instead of the hash of the route (gRFC A76); a valid name of a
        /// header that is not binary.
        request_hash_header: Option<Box<str>>,
    },
    /// The endpoint with the fewest RPCs in flight of some random ones (gRFC A48).
    LeastRequest {
        /// The number of endpoints that are compared per pick; at least 2.
        choice_count: u32,
    },
    /// Round robin by the load that endpoints report (gRFC A58).
    WeightedRoundRobin(Box<WeightedRoundRobin>),
    /// A policy for a random subset of the endpoints (gRFC A68).
    RandomSubsetting {
        /// The number of endpoints in the subset; not 0.
        subset_size: u32,
        /// The policy of the subset.
        child: Box<LbPolicy>,
    },
    /// The first endpoint that connects (gRFC A62).
    PickFirst {
        /// Whether the address list is shuffled.
        shuffle_address_list: bool,
    },
    /// A policy of the application (gRFC A52).
    Custom(CustomPolicy),
}

/// A52-03: the maximum nesting depth of policies.
const MAX_DEPTH: usize = 16;

/// A42: the maximum ring size, which is also the default of the upper limit.
pub(super) const MAX_RING_SIZE: u64 = 8 << 20;

/// A42: the default of the lower limit.
pub(super) const DEFAULT_MIN_RING_SIZE: u64 = 1024;

/// A48: the default number of endpoints that are compared per pick.
pub(super) const DEFAULT_CHOICE_COUNT: u32 = 2;

/// Parses a policy's config at a nesting depth; `None` only after a violation was recorded.
type Parser = fn(&Field<'_>, &[u8], usize) -> Option<LbPolicy>;

/// The supported policies, by config type. A new policy is one more line.
const REGISTRY: [(&str, Parser); 7] = [
    ("envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality", wrr_locality),
    ("envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin", round_robin),
    ("envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", ring_hash),
    ("envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest", least_request),
    (
        "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        lb_weighted::read,
    ),
    ("envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting", random_subsetting),
    ("envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst", pick_first),
];

/// The policy of a cluster.
pub(crate) fn cluster_policy(at: &Field<'_>, proto: &wire::Cluster) -> Option<LbPolicy> {
    // A52-01: the list takes precedence over the old enum.
    match &proto.load_balancing_policy {
        Some(list) => first_known(&at.field("load_balancing_policy"), list, 0),
        None => legacy(at, proto),
    }
}

/// Whether this is the config type of a supported policy.
pub(super) fn is_built_in(type_name: &str) -> bool {
    REGISTRY.iter().any(|(known, _)| *known == type_name)
}

/// A52-04: the first supported policy of a list; all others are skipped.
fn first_known(at: &Field<'_>, list: &wire::LoadBalancingPolicy, depth: usize) -> Option<LbPolicy> {
    check_depth(at, depth)?;
    let at_list = at.field("policies");
    let mut skipped = Vec::new();
    for (i, policy) in list.policies.iter().enumerate() {
        let at = at_list.index(i);
        let at = at.field("typed_extension_config");
        let config = at.require(policy.typed_extension_config.as_ref())?;
        let at = at.field("typed_config");
        let extension = Extension::read(&at, config.typed_config.as_ref())?;
        match &extension.config {
            ExtensionConfig::Encoded(value) => {
                let known = REGISTRY.iter().find(|(type_name, _)| *type_name == extension.type_name);
                if let Some((_, parser)) = known {
                    return parser(&at, value, depth);
                }
            }
            // A52-05, A52-06: a TypedStruct names a policy of gRPC or of the application, and contains its JSON config.
            ExtensionConfig::Struct(json) => {
                if let Some(parser) = lb_json::parser(&at, &extension.type_name) {
                    return parser.parse(&at.field("value"), &extension.type_name, json, depth);
                }
            }
        }
        skipped.push(extension.type_name);
    }
    unsupported(at, &skipped)
}

/// A52-07: a list without a supported policy is a violation, which names those that were skipped.
pub(super) fn unsupported<T>(at: &Field<'_>, skipped: &[impl AsRef<str>]) -> Option<T> {
    if skipped.is_empty() {
        return at.fail("no policy of the list is supported: it is empty");
    }
    let names: Vec<_> = skipped.iter().map(|name| format!("{:?}", name.as_ref())).collect();
    at.fail(format!("no policy of the list is supported: {}", names.join(", ")))
}

/// A52-03: policies must not be nested too deeply.
pub(super) fn check_depth(at: &Field<'_>, depth: usize) -> Option<()> {
    if depth >= MAX_DEPTH {
        return at.fail(format!("policies are nested deeper than {MAX_DEPTH} levels"));
    }
    Some(())
}

fn legacy(at: &Field<'_>, proto: &wire::Cluster) -> Option<LbPolicy> {
    match LegacyPolicy::try_from(proto.lb_policy) {
        Ok(LegacyPolicy::RoundRobin) => Some(LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))),
        Ok(LegacyPolicy::RingHash) => {
            let at = at.field("ring_hash_lb_config");
            let Some(LbConfig::RingHashLbConfig(config)) = &proto.lb_config else {
                return ring(&at, None, None);
            };
            // A42: only XX_HASH.
            if config.hash_function != LegacyHashFunction::XxHash as i32 {
                at.field("hash_function").reject("must be XX_HASH");
            }
            ring(&at, config.minimum_ring_size, config.maximum_ring_size)
        }
        // A48-01: localities by weight, endpoints by their RPCs in flight.
        Ok(LegacyPolicy::LeastRequest) => {
            let at = at.field("least_request_lb_config");
            // A48-02: without the config its fields have their defaults.
            let count = match &proto.lb_config {
                Some(LbConfig::LeastRequestLbConfig(config)) => config.choice_count,
                _ => None,
            };
            choices(&at, count).map(|child| LbPolicy::WrrLocality(Box::new(child)))
        }
        Ok(policy) => at.field("lb_policy").fail(format!("{} is not supported", policy.as_str_name())),
        Err(_) => at.field("lb_policy").fail(format!("{} is not known", proto.lb_policy)),
    }
}

fn wrr_locality(at: &Field<'_>, value: &[u8], depth: usize) -> Option<LbPolicy> {
    let proto: policies::wrr_locality::v3::WrrLocality = extension::decode(at, value)?;
    let at = at.field("endpoint_picking_policy");
    let child = at.require(proto.endpoint_picking_policy.as_ref())?;
    first_known(&at, child, depth + 1).map(|child| LbPolicy::WrrLocality(Box::new(child)))
}

fn round_robin(at: &Field<'_>, value: &[u8], _depth: usize) -> Option<LbPolicy> {
    extension::decode::<policies::round_robin::v3::RoundRobin>(at, value).map(|_| LbPolicy::RoundRobin)
}

fn ring_hash(at: &Field<'_>, value: &[u8], _depth: usize) -> Option<LbPolicy> {
    let proto: policies::ring_hash::v3::RingHash = extension::decode(at, value)?;
    // A42, A52: only XX_HASH. DEFAULT_HASH, the value of an unset field, means the same.
    if !matches!(
        HashFunction::try_from(proto.hash_function),
        Ok(HashFunction::DefaultHash | HashFunction::XxHash)
    ) {
        at.field("hash_function").reject("must be XX_HASH");
    }
    ring(at, proto.minimum_ring_size, proto.maximum_ring_size)
}

/// A42: both limits are between 1 and 8M, and in order.
fn ring(at: &Field<'_>, min: Option<UInt64Value>, max: Option<UInt64Value>) -> Option<LbPolicy> {
    let min_ring_size = min.map_or(DEFAULT_MIN_RING_SIZE, |value| value.value);
    let max_ring_size = max.map_or(MAX_RING_SIZE, |value| value.value);
    for (field, size) in [("minimum_ring_size", min_ring_size), ("maximum_ring_size", max_ring_size)] {
        if !(1..=MAX_RING_SIZE).contains(&size) {
            at.field(field).reject(format!("{size} is not in the range 1 to {MAX_RING_SIZE}"));
        }
    }
    if min_ring_size > max_ring_size {
        at.field("minimum_ring_size").reject("must not be greater than maximum_ring_size");
    }
    Some(LbPolicy::RingHash { min_ring_size, max_ring_size, request_hash_header: None })
}

fn least_request(at: &Field<'_>, value: &[u8], _depth: usize) -> Option<LbPolicy> {
    let proto: policies::least_request::v3::LeastRequest = extension::decode(at, value)?;
    // A48-03: active_request_bias and slow_start_config are ignored.
    choices(at, proto.choice_count)
}

fn choices(at: &Field<'_>, count: Option<UInt32Value>) -> Option<LbPolicy> {
    let choice_count = count.map_or(DEFAULT_CHOICE_COUNT, |count| count.value);
    // A48-06: fewer than two are rejected.
    if choice_count < 2 {
        at.field("choice_count").reject(format!("{choice_count} is less than 2"));
    }
    Some(LbPolicy::LeastRequest { choice_count })
}

fn random_subsetting(at: &Field<'_>, value: &[u8], depth: usize) -> Option<LbPolicy> {
    let proto: policies::random_subsetting::v3::RandomSubsetting = extension::decode(at, value)?;
    // A68-01: the size is required, and not 0.
    let subset_size = proto.subset_size.map_or(0, |size| size.value);
    if subset_size == 0 {
        at.field("subset_size").reject("must be greater than 0");
    }
    let at = at.field("child_policy");
    let child = at.require(proto.child_policy.as_ref())?;
    let child = Box::new(first_known(&at, child, depth + 1)?);
    Some(LbPolicy::RandomSubsetting { subset_size, child })
}

fn pick_first(at: &Field<'_>, value: &[u8], _depth: usize) -> Option<LbPolicy> {
    let proto: policies::pick_first::v3::PickFirst = extension::decode(at, value)?;
    Some(LbPolicy::PickFirst { shuffle_address_list: proto.shuffle_address_list })
}
