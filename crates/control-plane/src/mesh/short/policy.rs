//! Load balancing policies: a name, or a name with its settings.

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::LoadBalancingPolicy;
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use envoy_types::pb::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use envoy_types::pb::envoy::extensions::load_balancing_policies::pick_first::v3::PickFirst;
use envoy_types::pb::envoy::extensions::load_balancing_policies::random_subsetting::v3::RandomSubsetting;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::RingHash;
use envoy_types::pb::envoy::extensions::load_balancing_policies::ring_hash::v3::ring_hash::HashFunction;
use envoy_types::pb::google::protobuf::{BoolValue, UInt32Value, UInt64Value};
use proxyless_testkit::resources::{duration, extension, round_robin, wrr_locality};

use crate::file::node::{Node, Value};
use crate::file::problem::{Position, Problems};
use crate::file::read::{self, Fields};

const NAMES: &[(&str, Kind)] = &[
    ("round_robin", Kind::RoundRobin),
    ("pick_first", Kind::PickFirst),
    ("ring_hash", Kind::RingHash),
    ("least_request", Kind::LeastRequest),
    ("weighted_round_robin", Kind::WeightedRoundRobin),
    ("random_subsetting", Kind::RandomSubsetting),
];

#[derive(Clone, Copy)]
enum Kind {
    RoundRobin,
    PickFirst,
    RingHash,
    LeastRequest,
    WeightedRoundRobin,
    RandomSubsetting,
}

/// The policy of a cluster. Those that spread RPCs over a locality get the one that picks localities by weight above.
pub(super) fn policy(node: &Node, problems: &mut Problems) -> Option<TypedExtensionConfig> {
    let (kind, config) = endpoint_policy(node, problems)?;
    Some(match kind {
        Kind::RoundRobin | Kind::LeastRequest | Kind::WeightedRoundRobin | Kind::PickFirst => {
            wrr_locality(config)
        }
        Kind::RingHash | Kind::RandomSubsetting => config,
    })
}

fn endpoint_policy(node: &Node, problems: &mut Problems) -> Option<(Kind, TypedExtensionConfig)> {
    let empty = Node { at: node.at, value: Value::Map(Vec::new()) };
    let (kind, settings) = match &node.value {
        Value::Map(entries) => match &entries[..] {
            [entry] => {
                let settings = if entry.value.is_null() { &empty } else { &entry.value };
                (named(&entry.key, entry.key_at, problems)?, settings)
            }
            _ => {
                return problems.fail(node.at, "a policy is a name, or a map with one name and its settings");
            }
        },
        _ => (read::word(node, NAMES, problems)?, &empty),
    };
    let config = match kind {
        Kind::RoundRobin => {
            Fields::of(settings, "round_robin", &[], problems)?;
            round_robin()
        }
        Kind::PickFirst => {
            let fields = Fields::of(settings, "pick_first", &["shuffle"], problems)?;
            let shuffle_address_list = fields.read("shuffle", problems, read::boolean).unwrap_or(false);
            extension("pick_first", &PickFirst { shuffle_address_list })
        }
        Kind::RingHash => {
            let fields = Fields::of(settings, "ring_hash", &["min_size", "max_size"], problems)?;
            let size = |name: &str, problems: &mut Problems| {
                fields.read(name, problems, read::whole).map(|value| UInt64Value { value })
            };
            let config = RingHash {
                hash_function: HashFunction::XxHash.into(),
                minimum_ring_size: size("min_size", problems),
                maximum_ring_size: size("max_size", problems),
                ..Default::default()
            };
            extension("ring_hash", &config)
        }
        Kind::LeastRequest => {
            let fields = Fields::of(settings, "least_request", &["choices"], problems)?;
            let choices = fields.read("choices", problems, read::whole);
            let choice_count = choices.map(|value| UInt32Value { value });
            extension("least_request", &LeastRequest { choice_count, ..Default::default() })
        }
        Kind::WeightedRoundRobin => extension("weighted_round_robin", &weighted(settings, problems)?),
        Kind::RandomSubsetting => extension("random_subsetting", &subsetting(settings, problems)?),
    };
    Some((kind, config))
}

fn named(name: &str, at: Position, problems: &mut Problems) -> Option<Kind> {
    let scalar = crate::file::node::Scalar { text: name.to_owned(), plain: false };
    read::word(&Node { at, value: Value::Scalar(scalar) }, NAMES, problems)
}

fn weighted(node: &Node, problems: &mut Problems) -> Option<ClientSideWeightedRoundRobin> {
    let known = ["blackout_period", "weight_expiration_period", "weight_update_period", "out_of_band_period"];
    let fields = Fields::of(node, "weighted_round_robin", &known, problems)?;
    let time = |name: &str, problems: &mut Problems| {
        fields.read(name, problems, read::duration).map(|time: Duration| duration(time))
    };
    let out_of_band = time("out_of_band_period", problems);
    Some(ClientSideWeightedRoundRobin {
        enable_oob_load_report: out_of_band.map(|_| BoolValue { value: true }),
        oob_reporting_period: out_of_band,
        blackout_period: time("blackout_period", problems),
        weight_expiration_period: time("weight_expiration_period", problems),
        weight_update_period: time("weight_update_period", problems),
        ..Default::default()
    })
}

fn subsetting(node: &Node, problems: &mut Problems) -> Option<RandomSubsetting> {
    let fields = Fields::of(node, "random_subsetting", &["subset_size", "policy"], problems)?;
    let subset_size: Option<u32> = fields.read("subset_size", problems, read::whole);
    if fields.get("subset_size").is_none() {
        problems.add(node.at, "random_subsetting needs subset_size");
    }
    let child = match fields.get("policy") {
        Some(node) => endpoint_policy(node, problems)?.1,
        None => round_robin(),
    };
    let policies = vec![Policy { typed_extension_config: Some(child) }];
    Some(RandomSubsetting {
        subset_size: Some(UInt32Value { value: subset_size? }),
        child_policy: Some(LoadBalancingPolicy { policies }),
    })
}
