//! Load balancing policies by gRPC name and JSON config, as in a TypedStruct (gRFC A52).

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use super::field::Field;
use super::lb_config::{
    DEFAULT_CHOICE_COUNT, DEFAULT_MIN_RING_SIZE, LbPolicy, MAX_RING_SIZE, check_depth, unsupported,
};
use super::lb_custom::{self, CustomPolicies};
use super::lb_weighted;

/// The default of `maxRingSize`, which differs from that of the xDS field; the client caps rings at this size anyway
/// (A42).
const DEFAULT_MAX_RING_SIZE: u64 = 4096;

/// Parses the config of a policy of gRPC at a nesting depth; `None` only after a violation was recorded.
type BuiltIn = fn(&Field<'_>, &Struct, usize) -> Option<LbPolicy>;

/// The parser of a policy's config.
pub(super) enum Parser<'a> {
    BuiltIn(BuiltIn),
    Custom(&'a dyn CustomPolicies),
}

impl Parser<'_> {
    /// Parses the config of the policy with this name at a nesting depth; `None` only after a violation was recorded.
    pub(super) fn parse(&self, at: &Field<'_>, name: &str, json: &Struct, depth: usize) -> Option<LbPolicy> {
        match self {
            Self::BuiltIn(parser) => parser(at, json, depth),
            Self::Custom(policies) => lb_custom::read(*policies, at, name, json, depth),
        }
    }
}

/// The parser of the policy with this name, if it is supported: one of gRPC's, or one of the application's.
pub(super) fn parser<'a>(at: &Field<'a>, name: &str) -> Option<Parser<'a>> {
    if let Some(parser) = built_in(name) {
        return Some(Parser::BuiltIn(parser));
    }
    at.context().policies.as_deref().filter(|policies| policies.contains(name)).map(Parser::Custom)
}

/// The parser of the policy with this name in gRPC's registry, if it is supported.
pub(super) fn built_in(name: &str) -> Option<BuiltIn> {
    match name {
        "round_robin" => Some(|_, _, _| Some(LbPolicy::RoundRobin)),
        "pick_first" => Some(pick_first),
        "least_request_experimental" => Some(least_request),
        "ring_hash_experimental" => Some(ring_hash),
        "weighted_round_robin_experimental" => Some(lb_weighted::read_json),
        "random_subsetting_experimental" => Some(random_subsetting),
        "xds_wrr_locality_experimental" => Some(wrr_locality),
        _ => None,
    }
}

fn pick_first(at: &Field<'_>, json: &Struct, _depth: usize) -> Option<LbPolicy> {
    let shuffle_address_list = match kind(json, "shuffleAddressList") {
        None => false,
        Some(Kind::BoolValue(value)) => *value,
        Some(_) => return at.key("shuffleAddressList").fail("must be a bool"),
    };
    Some(LbPolicy::PickFirst { shuffle_address_list })
}

fn least_request(at: &Field<'_>, json: &Struct, _depth: usize) -> Option<LbPolicy> {
    let choice_count = match kind(json, "choiceCount") {
        None => Some(DEFAULT_CHOICE_COUNT),
        Some(Kind::NumberValue(number)) => whole(*number).and_then(|count| u32::try_from(count).ok()),
        Some(Kind::StringValue(text)) => text.parse().ok(),
        Some(_) => None,
    };
    // A48-06: fewer than two are rejected.
    let Some(choice_count) = choice_count.filter(|&count| count >= 2) else {
        return at.key("choiceCount").fail("must be a whole number of at least 2");
    };
    Some(LbPolicy::LeastRequest { choice_count })
}

/// A42: both limits are between 1 and 8M, and in order.
fn ring_hash(at: &Field<'_>, json: &Struct, _depth: usize) -> Option<LbPolicy> {
    let min_ring_size = ring_size(at, json, "minRingSize", DEFAULT_MIN_RING_SIZE);
    let max_ring_size = ring_size(at, json, "maxRingSize", DEFAULT_MAX_RING_SIZE);
    let (min_ring_size, max_ring_size) = (min_ring_size?, max_ring_size?);
    if min_ring_size > max_ring_size {
        at.key("minRingSize").reject("must not be greater than maxRingSize");
    }
    let request_hash_header = request_hash_header(at, json)?;
    Some(LbPolicy::RingHash { min_ring_size, max_ring_size, request_hash_header })
}

/// A76-01: the name of a header that is not binary; empty if there is none. `None` only after a violation was recorded.
fn request_hash_header(at: &Field<'_>, json: &Struct) -> Option<Option<Box<str>>> {
    let at = at.key("requestHashHeader");
    let name = match kind(json, "requestHashHeader") {
        None => return Some(None),
        Some(Kind::StringValue(name)) => name,
        Some(_) => return at.fail("must be a string"),
    };
    if name.is_empty() {
        return Some(None);
    }
    if !name.bytes().all(is_in_header_names) {
        return at.fail(format!("{name:?} is not a valid header name"));
    }
    if name.to_ascii_lowercase().ends_with("-bin") {
        return at.fail(format!("{name:?} is a binary header"));
    }
    Some(Some(name.as_str().into()))
}

/// RFC 9110, section 5.6.2: the characters of a token.
fn is_in_header_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn ring_size(at: &Field<'_>, json: &Struct, name: &str, default: u64) -> Option<u64> {
    let size = match kind(json, name) {
        None => return Some(default),
        Some(Kind::NumberValue(number)) => whole(*number),
        // A 64-bit number in proto JSON may be a string.
        Some(Kind::StringValue(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let size = size.filter(|size| (1..=MAX_RING_SIZE).contains(size));
    if size.is_none() {
        at.key(name).reject(format!("must be a whole number in the range 1 to {MAX_RING_SIZE}"));
    }
    size
}

/// An integer of at most 32 bits, which is exact in `f64`.
fn whole(number: f64) -> Option<u64> {
    let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    fits.then_some(number as u64)
}

fn wrr_locality(at: &Field<'_>, json: &Struct, depth: usize) -> Option<LbPolicy> {
    child(at, json, "childPolicy", depth).map(|child| LbPolicy::WrrLocality(Box::new(child)))
}

fn random_subsetting(at: &Field<'_>, json: &Struct, depth: usize) -> Option<LbPolicy> {
    let subset_size = match kind(json, "subsetSize") {
        Some(Kind::NumberValue(number)) => whole(*number).and_then(|size| u32::try_from(size).ok()),
        Some(Kind::StringValue(text)) => text.parse().ok(),
        _ => None,
    };
    // A68-01: the size is required, and not 0.
    let Some(subset_size) = subset_size.filter(|&size| size > 0) else {
        return at.key("subsetSize").fail("must be a whole number greater than 0");
    };
    let child = Box::new(child(at, json, "childPolicy", depth)?);
    Some(LbPolicy::RandomSubsetting { subset_size, child })
}

/// The first supported policy of this field, which is usually `childPolicy`.
pub(super) fn child(at: &Field<'_>, json: &Struct, field: &str, depth: usize) -> Option<LbPolicy> {
    let at = at.key(field);
    let Some(list) = kind(json, field) else { return at.require(None) };
    let Kind::ListValue(list) = list else { return at.fail("must be a list") };
    check_depth(&at, depth + 1)?;
    let mut skipped = Vec::new();
    for (i, value) in list.values.iter().enumerate() {
        let at = at.index(i);
        let Some((name, config)) = only_field(value) else {
            return at.fail("must be an object with the name of one policy");
        };
        let Some(parser) = parser(&at, name) else {
            skipped.push(name);
            continue;
        };
        let at = at.key(name);
        let Some(Kind::StructValue(config)) = &config.kind else { return at.fail("must be an object") };
        return parser.parse(&at, name, config, depth + 1);
    }
    unsupported(&at, &skipped)
}

/// The name and value of the single field of an object.
fn only_field(value: &Value) -> Option<(&String, &Value)> {
    let Some(Kind::StructValue(Struct { fields })) = &value.kind else { return None };
    let mut fields = fields.iter();
    fields.next().filter(|_| fields.next().is_none())
}

/// A field's value; `null` counts as absent.
pub(super) fn kind<'j>(json: &'j Struct, name: &str) -> Option<&'j Kind> {
    json.fields.get(name)?.kind.as_ref().filter(|kind| !matches!(kind, Kind::NullValue(_)))
}
