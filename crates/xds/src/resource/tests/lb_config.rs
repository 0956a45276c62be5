use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3 as wire;
use envoy_types::pb::envoy::config::core::v3::{RuntimeDouble, TypedExtensionConfig};
use envoy_types::pb::envoy::extensions::load_balancing_policies as policies;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{
    Any, BoolValue, Duration as WireDuration, FloatValue, ListValue, Struct, UInt32Value, UInt64Value, Value,
};
use policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use policies::least_request::v3::LeastRequest;
use policies::pick_first::v3::PickFirst;
use policies::random_subsetting::v3::RandomSubsetting;
use policies::ring_hash::v3::RingHash;
use policies::round_robin::v3::RoundRobin;
use policies::wrr_locality::v3::WrrLocality;
use prost::Message;
use serde_json::json;
use wire::cluster::{LbConfig, LbPolicy as LegacyPolicy, LeastRequestLbConfig, RingHashLbConfig};
use wire::load_balancing_policy::Policy;

use super::builders::{any, any_of_type, eds_cluster};
use super::{accepts, as_cluster, rejects};
use crate::resource::extension::TypedStruct;
use crate::resource::{LbPolicy, WeightedRoundRobin};

fn list(configs: Vec<Any>) -> wire::LoadBalancingPolicy {
    let policies = configs.into_iter().map(|config| Policy {
        typed_extension_config: Some(TypedExtensionConfig {
            name: "policy".into(),
            typed_config: Some(config),
        }),
    });
    wire::LoadBalancingPolicy { policies: policies.collect() }
}

pub(super) fn cluster(configs: Vec<Any>) -> wire::Cluster {
    // The old enum must not count.
    let lb_policy = LegacyPolicy::Maglev as i32;
    wire::Cluster { load_balancing_policy: Some(list(configs)), lb_policy, ..eds_cluster() }
}

fn accepted(cluster: &wire::Cluster) -> LbPolicy {
    as_cluster(accepts(cluster)).lb_policy.clone().expect("a policy")
}

pub(super) fn wrr_locality(child: Any) -> Any {
    any(&WrrLocality { endpoint_picking_policy: Some(list(vec![child])) })
}

pub(super) fn round_robin() -> Any {
    any(&RoundRobin::default())
}

pub(super) const FIRST: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config";

#[test]
fn a52_01_a52_10_a52_11_known_policies_are_read() {
    assert_eq!(accepted(&cluster(vec![round_robin()])), LbPolicy::RoundRobin);
    assert_eq!(
        accepted(&cluster(vec![wrr_locality(round_robin())])),
        LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin))
    );
    for shuffle_address_list in [false, true] {
        let config = any(&PickFirst { shuffle_address_list });
        assert_eq!(accepted(&cluster(vec![config])), LbPolicy::PickFirst { shuffle_address_list });
    }
}

#[test]
fn a52_04_a52_05_the_first_known_policy_counts() {
    let custom = TypedStruct { type_url: "type.googleapis.com/example.Custom".into(), value: None };
    let known = TypedStruct { type_url: round_robin().type_url, value: None };
    let configs = vec![
        any_of_type("example.Unknown", b"\xff"),
        any_of_type("xds.type.v3.TypedStruct", &custom.encode_to_vec()),
        any_of_type("udpa.type.v1.TypedStruct", &custom.encode_to_vec()),
        any_of_type("xds.type.v3.TypedStruct", &known.encode_to_vec()),
        any(&policies::maglev::v3::Maglev::default()),
        any(&policies::random::v3::Random::default()),
        any(&PickFirst::default()),
        round_robin(),
    ];
    assert_eq!(accepted(&cluster(configs)), LbPolicy::PickFirst { shuffle_address_list: false });
}

/// A TypedStruct of either kind for a policy of gRPC's registry.
pub(super) fn by_name(outer: &str, name: &str, json: serde_json::Value) -> Any {
    let typed = TypedStruct {
        type_url: format!("type.googleapis.com/{name}"),
        value: json.as_object().map(proto_struct),
    };
    any_of_type(outer, &typed.encode_to_vec())
}

fn proto_struct(fields: &serde_json::Map<String, serde_json::Value>) -> Struct {
    Struct { fields: fields.iter().map(|(name, json)| (name.clone(), proto_value(json))).collect() }
}

fn proto_value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a small number")),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(list) => {
            Kind::ListValue(ListValue { values: list.iter().map(proto_value).collect() })
        }
        serde_json::Value::Object(fields) => Kind::StructValue(proto_struct(fields)),
    };
    Value { kind: Some(kind) }
}

pub(super) const OUTER: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

#[test]
fn a52_05_a52_06_a_typed_struct_configures_the_policy_that_it_names() {
    let rings = |min_ring_size, max_ring_size| LbPolicy::RingHash {
        min_ring_size,
        max_ring_size,
        request_hash_header: None,
    };
    let wrr = |child| LbPolicy::WrrLocality(Box::new(child));
    let least = |choice_count| LbPolicy::LeastRequest { choice_count };
    for (name, json, expected) in [
        ("round_robin", json!({}), LbPolicy::RoundRobin),
        ("round_robin", json!(null), LbPolicy::RoundRobin),
        ("pick_first", json!({}), LbPolicy::PickFirst { shuffle_address_list: false }),
        (
            "pick_first",
            json!({"shuffleAddressList": true}),
            LbPolicy::PickFirst { shuffle_address_list: true },
        ),
        ("least_request_experimental", json!({}), least(2)),
        ("least_request_experimental", json!({"choiceCount": 4_294_967_295_u32}), least(u32::MAX)),
        ("weighted_round_robin_experimental", json!({}), weighted(WeightedRoundRobin::default())),
        (
            "weighted_round_robin_experimental",
            json!({"enableOobLoadReport": true, "oobReportingPeriod": "1.5s", "blackoutPeriod": "0s",
                "weightExpirationPeriod": "60s", "weightUpdatePeriod": "2s", "errorUtilizationPenalty": 0.5,
                "metricNamesForComputingUtilization": ["cpu_utilization", "named_metrics.foo"]}),
            weighted(all_fields()),
        ),
        (
            "random_subsetting_experimental",
            json!({"subsetSize": 3, "childPolicy": [{"custom": {}}, {"round_robin": {}}]}),
            LbPolicy::RandomSubsetting { subset_size: 3, child: Box::new(LbPolicy::RoundRobin) },
        ),
        ("ring_hash_experimental", json!({}), rings(1024, 4096)),
        ("ring_hash_experimental", json!({"minRingSize": 5, "maxRingSize": "7"}), rings(5, 7)),
        ("ring_hash_experimental", json!({"minRingSize": null, "other": []}), rings(1024, 4096)),
        (
            "ring_hash_experimental",
            json!({"requestHashHeader": "x-User"}),
            LbPolicy::RingHash {
                min_ring_size: 1024,
                max_ring_size: 4096,
                request_hash_header: Some("x-User".into()),
            },
        ),
        ("ring_hash_experimental", json!({"requestHashHeader": ""}), rings(1024, 4096)),
        (
            "xds_wrr_locality_experimental",
            json!({"childPolicy": [{"custom": 1}, {"round_robin": {}}, {"pick_first": {}}]}),
            wrr(LbPolicy::RoundRobin),
        ),
    ] {
        for outer in OUTER {
            assert_eq!(
                accepted(&cluster(vec![by_name(outer, name, json.clone())])),
                expected,
                "{name} {json}"
            );
        }
    }
}

#[test]
fn a52_08_a_bad_config_in_a_typed_struct_is_rejected_by_its_path() {
    let value = format!("{FIRST}.value");
    for (name, json, path, why) in [
        ("pick_first", json!({"shuffleAddressList": 1}), r#"["shuffleAddressList"]"#, "must be a bool"),
        ("least_request_experimental", json!({"choiceCount": 1}), r#"["choiceCount"]"#, "at least 2"),
        ("least_request_experimental", json!({"choiceCount": 2.5}), r#"["choiceCount"]"#, "at least 2"),
        ("least_request_experimental", json!({"choiceCount": true}), r#"["choiceCount"]"#, "at least 2"),
        (WRR, json!({"enableOobLoadReport": 1}), r#"["enableOobLoadReport"]"#, "must be a bool"),
        (WRR, json!({"blackoutPeriod": "1"}), r#"["blackoutPeriod"]"#, "must be a duration"),
        (WRR, json!({"blackoutPeriod": "-1s"}), r#"["blackoutPeriod"]"#, "must be a duration"),
        (WRR, json!({"weightUpdatePeriod": 1}), r#"["weightUpdatePeriod"]"#, "must be a duration"),
        (WRR, json!({"errorUtilizationPenalty": -0.5}), r#"["errorUtilizationPenalty"]"#, "is negative"),
        (WRR, json!({"errorUtilizationPenalty": "1"}), r#"["errorUtilizationPenalty"]"#, "must be a number"),
        (
            WRR,
            json!({"metricNamesForComputingUtilization": [1]}),
            r#"["metricNamesForComputingUtilization"]"#,
            "must be a list of strings",
        ),
        ("random_subsetting_experimental", json!({}), r#"["subsetSize"]"#, "greater than 0"),
        ("random_subsetting_experimental", json!({"subsetSize": 0}), r#"["subsetSize"]"#, "greater than 0"),
        ("random_subsetting_experimental", json!({"subsetSize": 1}), r#"["childPolicy"]"#, "must be set"),
        ("ring_hash_experimental", json!({"minRingSize": 0}), r#"["minRingSize"]"#, "in the range"),
        ("ring_hash_experimental", json!({"minRingSize": -1}), r#"["minRingSize"]"#, "in the range"),
        ("ring_hash_experimental", json!({"minRingSize": 1.5}), r#"["minRingSize"]"#, "whole number"),
        ("ring_hash_experimental", json!({"maxRingSize": 8_388_609}), r#"["maxRingSize"]"#, "in the range"),
        ("ring_hash_experimental", json!({"maxRingSize": "x"}), r#"["maxRingSize"]"#, "whole number"),
        ("ring_hash_experimental", json!({"maxRingSize": 1}), r#"["minRingSize"]"#, "must not be greater"),
        ("xds_wrr_locality_experimental", json!({}), r#"["childPolicy"]"#, "must be set"),
        ("xds_wrr_locality_experimental", json!({"childPolicy": {}}), r#"["childPolicy"]"#, "must be a list"),
        (
            "xds_wrr_locality_experimental",
            json!({"childPolicy": []}),
            r#"["childPolicy"]"#,
            "no policy of the list is supported: it is empty",
        ),
        (
            "xds_wrr_locality_experimental",
            json!({"childPolicy": [{"a.A": {}}, {"b.B": {}}]}),
            r#"["childPolicy"]"#,
            r#"no policy of the list is supported: "a.A", "b.B""#,
        ),
        (
            "xds_wrr_locality_experimental",
            json!({"childPolicy": [{}]}),
            r#"["childPolicy"][0]"#,
            "one policy",
        ),
        (
            "xds_wrr_locality_experimental",
            json!({"childPolicy": [{"ring_hash_experimental": {"minRingSize": true}}]}),
            r#"["childPolicy"][0]["ring_hash_experimental"]["minRingSize"]"#,
            "whole number",
        ),
    ] {
        let bad = by_name(OUTER[0], name, json);
        // A known policy that is bad is not passed over.
        rejects(&cluster(vec![bad, round_robin()]), &format!("{value}{path}"), why);
    }
}

#[test]
fn a27_08_policies_that_xds_brought_go_by_their_experimental_names() {
    for name in ["ring_hash", "wrr_locality", "xds_wrr_locality", "round_robin_experimental"] {
        let json = json!({"childPolicy": [{"round_robin": {}}]});
        let unknown = cluster(vec![by_name(OUTER[0], name, json)]);
        rejects(&unknown, "load_balancing_policy", "no policy of the list is supported");
    }
}

#[test]
fn a52_03_nesting_by_typed_structs_is_limited_as_well() {
    // The inner ones in JSON; protobuf itself allows about twelve.
    let nested = |outer: usize, inner: usize| {
        let wrap = |child, _| json!({"xds_wrr_locality_experimental": {"childPolicy": [child]}});
        let whole = (1..inner).fold(json!({"round_robin": {}}), wrap);
        let config = whole["xds_wrr_locality_experimental"].clone();
        let inner = by_name(OUTER[0], "xds_wrr_locality_experimental", config);
        (0..outer).fold(inner, |child, _| wrr_locality(child))
    };
    accepts(&cluster(vec![nested(8, 8)]));
    let found = super::decode_message(&cluster(vec![nested(8, 9)])).expect_err("too deep");
    assert!(found.len() == 1 && found[0].1.contains("nested deeper than 16 levels"), "{found:?}");
}

#[test]
fn a52_07_a_list_without_a_known_policy_is_rejected() {
    let struct_of = |outer, name| by_name(outer, name, json!({}));
    let names = |configs: Vec<Any>, why: &str| {
        let why = format!("no policy of the list is supported: {why}");
        rejects(&cluster(configs), "load_balancing_policy", &why);
    };
    names(vec![], "it is empty");
    names(vec![any_of_type("example.Unknown", b"")], r#""example.Unknown""#);
    names(
        vec![any_of_type("a.A", b""), struct_of(OUTER[0], "b.B"), struct_of(OUTER[1], "c.C")],
        r#""a.A", "b.B", "c.C""#,
    );
    rejects(
        &cluster(vec![wrr_locality(any_of_type("example.Unknown", b""))]),
        "load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy",
        "no policy of the list is supported",
    );
}

#[test]
fn a52_08_a_known_policy_that_is_bad_is_not_passed_over() {
    for name in ["round_robin.v3.RoundRobin", "ring_hash.v3.RingHash", "pick_first.v3.PickFirst"] {
        let bad = any_of_type(&format!("envoy.extensions.load_balancing_policies.{name}"), b"\xff");
        rejects(&cluster(vec![bad, round_robin()]), FIRST, "does not decode");
    }
    rejects(
        &cluster(vec![any(&WrrLocality::default()), round_robin()]),
        "load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy",
        "must be set",
    );
}

#[test]
fn a52_02_a_policy_needs_a_config() {
    let mut cluster = cluster(vec![round_robin()]);
    let policies = &mut cluster.load_balancing_policy.as_mut().expect("a list").policies;
    policies[0].typed_extension_config.as_mut().expect("a config").typed_config = None;
    rejects(&cluster, FIRST, "must be set");
    let policies = &mut cluster.load_balancing_policy.as_mut().expect("a list").policies;
    policies[0].typed_extension_config = None;
    rejects(&cluster, "load_balancing_policy.policies[0].typed_extension_config", "must be set");
}

#[test]
fn a52_03_sixteen_levels_are_the_limit() {
    let nested = |levels: usize| (1..levels).fold(round_robin(), |child, _| wrr_locality(child));
    accepts(&cluster(vec![nested(16)]));
    let found = super::decode_message(&cluster(vec![nested(17)])).expect_err("too deep");
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("nested deeper than 16 levels"), "{found:?}");
    assert_eq!(found[0].0.matches("endpoint_picking_policy").count(), 16);
}

#[test]
fn a27_60_fields_of_other_kinds_of_clusters_are_not_looked_at() {
    let bad_ring = RingHashLbConfig { hash_function: 1, ..Default::default() };
    let cluster = wire::Cluster {
        // Of another policy, and of another kind of discovery; both would be rejected where they count.
        lb_config: Some(LbConfig::RingHashLbConfig(bad_ring)),
        load_assignment: Some(Default::default()),
        ..eds_cluster()
    };
    accepts(&cluster);
    rejects(
        &wire::Cluster { lb_policy: LegacyPolicy::RingHash as i32, ..cluster.clone() },
        "ring_hash_lb_config.hash_function",
        "must be XX_HASH",
    );
}

#[test]
fn a27_90_round_robin_of_the_old_enum() {
    let expected = LbPolicy::WrrLocality(Box::new(LbPolicy::RoundRobin));
    assert_eq!(accepted(&eds_cluster()), expected);
}

#[test]
fn a27_90_other_values_of_the_old_enum_are_rejected() {
    for (policy, why) in [
        (LegacyPolicy::Random as i32, "RANDOM is not supported"),
        (LegacyPolicy::Maglev as i32, "MAGLEV is not supported"),
        (LegacyPolicy::ClusterProvided as i32, "CLUSTER_PROVIDED is not supported"),
        (LegacyPolicy::LoadBalancingPolicyConfig as i32, "LOAD_BALANCING_POLICY_CONFIG is not supported"),
        (99, "99 is not known"),
    ] {
        rejects(&wire::Cluster { lb_policy: policy, ..eds_cluster() }, "lb_policy", why);
    }
}

/// The same count in the new and in the old form, each with its path.
fn least_request(count: Option<u32>) -> [(wire::Cluster, &'static str); 2] {
    let choice_count = count.map(|value| UInt32Value { value });
    let new = LeastRequest { choice_count, ..Default::default() };
    let old = LeastRequestLbConfig { choice_count, ..Default::default() };
    let old = wire::Cluster {
        lb_policy: LegacyPolicy::LeastRequest as i32,
        lb_config: Some(LbConfig::LeastRequestLbConfig(old)),
        ..eds_cluster()
    };
    [(cluster(vec![wrr_locality(any(&new))]), ENDPOINT_PICKING), (old, "least_request_lb_config")]
}

const ENDPOINT_PICKING: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config\
    .endpoint_picking_policy.policies[0].typed_extension_config.typed_config";

fn least_requests(choice_count: u32) -> LbPolicy {
    LbPolicy::WrrLocality(Box::new(LbPolicy::LeastRequest { choice_count }))
}

#[test]
fn a48_01_least_request_picks_within_weighted_localities() {
    for (cluster, _) in least_request(Some(5)) {
        assert_eq!(accepted(&cluster), least_requests(5));
    }
}

#[test]
fn a48_02_a48_04_without_its_config_the_defaults_hold() {
    for (cluster, _) in least_request(None) {
        assert_eq!(accepted(&cluster), least_requests(2));
    }
    let bare = wire::Cluster { lb_policy: LegacyPolicy::LeastRequest as i32, ..eds_cluster() };
    assert_eq!(accepted(&bare), least_requests(2));
    // The config of another policy does not count.
    let ring = Some(LbConfig::RingHashLbConfig(RingHashLbConfig { hash_function: 1, ..Default::default() }));
    assert_eq!(accepted(&wire::Cluster { lb_config: ring, ..bare }), least_requests(2));
}

#[test]
fn a48_03_bias_and_slow_start_are_ignored() {
    let bias = RuntimeDouble { default_value: -1.0, runtime_key: String::new() };
    let config = LeastRequest { active_request_bias: Some(bias.clone()), ..Default::default() };
    let config = LeastRequest { slow_start_config: Some(Default::default()), ..config };
    assert_eq!(accepted(&cluster(vec![any(&config)])), LbPolicy::LeastRequest { choice_count: 2 });
    let old = LeastRequestLbConfig { active_request_bias: Some(bias), ..Default::default() };
    let old = wire::Cluster {
        lb_policy: LegacyPolicy::LeastRequest as i32,
        lb_config: Some(LbConfig::LeastRequestLbConfig(old)),
        ..eds_cluster()
    };
    assert_eq!(accepted(&old), least_requests(2));
}

#[test]
fn a48_05_a_large_choice_count_is_accepted() {
    for (cluster, _) in least_request(Some(u32::MAX)) {
        assert_eq!(accepted(&cluster), least_requests(u32::MAX));
    }
}

#[test]
fn a48_06_a_choice_count_below_two_is_rejected() {
    for count in [0, 1] {
        for (cluster, path) in least_request(Some(count)) {
            rejects(&cluster, &format!("{path}.choice_count"), "is less than 2");
        }
    }
}

const WRR: &str = "weighted_round_robin_experimental";

fn weighted(config: WeightedRoundRobin) -> LbPolicy {
    LbPolicy::WeightedRoundRobin(Box::new(config))
}

fn all_fields() -> WeightedRoundRobin {
    WeightedRoundRobin {
        enable_oob_load_report: Some(true),
        oob_reporting_period: Some(Duration::from_millis(1500)),
        blackout_period: Some(Duration::ZERO),
        weight_expiration_period: Some(Duration::from_secs(60)),
        weight_update_period: Some(Duration::from_secs(2)),
        error_utilization_penalty: Some(0.5),
        metric_names_for_computing_utilization: vec!["cpu_utilization".into(), "named_metrics.foo".into()],
    }
}

#[test]
fn a58_25_a114_07_the_config_of_weighted_round_robin_is_read() {
    let span = |seconds, nanos| Some(WireDuration { seconds, nanos });
    let config = ClientSideWeightedRoundRobin {
        enable_oob_load_report: Some(BoolValue { value: true }),
        oob_reporting_period: span(1, 500_000_000),
        blackout_period: span(0, 0),
        weight_expiration_period: span(60, 0),
        weight_update_period: span(2, 0),
        error_utilization_penalty: Some(FloatValue { value: 0.5 }),
        metric_names_for_computing_utilization: vec!["cpu_utilization".into(), "named_metrics.foo".into()],
        ..Default::default()
    };
    assert_eq!(accepted(&cluster(vec![any(&config)])), weighted(all_fields()));
    let bare = any(&ClientSideWeightedRoundRobin::default());
    let expected = LbPolicy::WrrLocality(Box::new(weighted(WeightedRoundRobin::default())));
    assert_eq!(accepted(&cluster(vec![wrr_locality(bare)])), expected);
}

#[test]
fn a58_06_a_negative_penalty_is_rejected() {
    for value in [-0.5, f32::NAN, f32::INFINITY] {
        let penalty = Some(FloatValue { value });
        let config =
            ClientSideWeightedRoundRobin { error_utilization_penalty: penalty, ..Default::default() };
        let path = format!("{FIRST}.error_utilization_penalty");
        rejects(&cluster(vec![any(&config), round_robin()]), &path, "is negative or not a number");
    }
}

#[test]
fn a58_02_invalid_periods_are_rejected() {
    let bad = || Some(WireDuration { seconds: -1, nanos: 0 });
    for (name, config) in [
        ("blackout_period", ClientSideWeightedRoundRobin { blackout_period: bad(), ..Default::default() }),
        (
            "oob_reporting_period",
            ClientSideWeightedRoundRobin { oob_reporting_period: bad(), ..Default::default() },
        ),
    ] {
        rejects(&cluster(vec![any(&config)]), &format!("{FIRST}.{name}.seconds"), "-1 is not in the range");
    }
}

#[test]
fn a68_01_a_subset_needs_a_size_and_a_child() {
    let subset = |size: Option<u32>, child: Option<Any>| {
        any(&RandomSubsetting {
            subset_size: size.map(|value| UInt32Value { value }),
            child_policy: child.map(|child| list(vec![child])),
        })
    };
    let expected = LbPolicy::RandomSubsetting { subset_size: 2, child: Box::new(LbPolicy::RoundRobin) };
    assert_eq!(accepted(&cluster(vec![subset(Some(2), Some(round_robin()))])), expected);
    for size in [None, Some(0)] {
        let config = subset(size, Some(round_robin()));
        rejects(&cluster(vec![config]), &format!("{FIRST}.subset_size"), "greater than 0");
    }
    rejects(&cluster(vec![subset(Some(2), None)]), &format!("{FIRST}.child_policy"), "must be set");
    let unknown = subset(Some(2), Some(any_of_type("example.Unknown", b"")));
    rejects(&cluster(vec![unknown]), &format!("{FIRST}.child_policy"), "no policy of the list");
}

#[test]
fn a76_01_the_request_hash_header_must_be_a_header_that_is_not_binary() {
    for (name, why) in [("a b", "not a valid header name"), ("key-bin", "binary"), ("Key-BIN", "binary")] {
        let bad = by_name(OUTER[0], "ring_hash_experimental", json!({"requestHashHeader": name}));
        let path = format!(r#"{FIRST}.value["requestHashHeader"]"#);
        rejects(&cluster(vec![bad, round_robin()]), &path, why);
    }
}

fn size(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

/// The same limits in the new and in the old form, each with its path.
fn ring_hash(min: Option<UInt64Value>, max: Option<UInt64Value>) -> [(wire::Cluster, &'static str); 2] {
    let new = RingHash { minimum_ring_size: min, maximum_ring_size: max, ..Default::default() };
    let old = RingHashLbConfig { minimum_ring_size: min, maximum_ring_size: max, hash_function: 0 };
    let old = wire::Cluster {
        lb_policy: LegacyPolicy::RingHash as i32,
        lb_config: Some(LbConfig::RingHashLbConfig(old)),
        ..eds_cluster()
    };
    [(cluster(vec![any(&new)]), FIRST), (old, "ring_hash_lb_config")]
}

#[test]
fn a42_the_limits_of_the_ring_are_read() {
    for (cluster, _) in ring_hash(size(5), size(7)) {
        assert_eq!(
            accepted(&cluster),
            LbPolicy::RingHash { min_ring_size: 5, max_ring_size: 7, request_hash_header: None }
        );
    }
    for (cluster, _) in ring_hash(size(1), size(8_388_608)) {
        accepts(&cluster);
    }
}

#[test]
fn a42_the_limits_have_the_defaults_of_xds() {
    let expected =
        LbPolicy::RingHash { min_ring_size: 1024, max_ring_size: 8_388_608, request_hash_header: None };
    for (cluster, _) in ring_hash(None, None) {
        assert_eq!(accepted(&cluster), expected);
    }
    let bare = wire::Cluster { lb_policy: LegacyPolicy::RingHash as i32, ..eds_cluster() };
    assert_eq!(accepted(&bare), expected);
}

#[test]
fn a42_limits_out_of_range_are_rejected() {
    for (cluster, path) in ring_hash(None, size(8_388_609)) {
        rejects(&cluster, &format!("{path}.maximum_ring_size"), "8388609 is not in the range");
    }
    for (cluster, path) in ring_hash(size(0), None) {
        rejects(&cluster, &format!("{path}.minimum_ring_size"), "0 is not in the range");
    }
}

#[test]
fn a42_limits_out_of_order_are_rejected() {
    for (min, max) in [(size(8), size(7)), (None, size(1023))] {
        for (cluster, path) in ring_hash(min, max) {
            rejects(&cluster, &format!("{path}.minimum_ring_size"), "must not be greater");
        }
    }
}

#[test]
fn a42_a52_09_only_xx_hash_is_accepted() {
    use policies::ring_hash::v3::ring_hash::HashFunction;
    let with =
        |function: i32| cluster(vec![any(&RingHash { hash_function: function, ..Default::default() })]);
    accepts(&with(HashFunction::XxHash as i32));
    // The default value of the field; see the deviations in docs/conformance.md.
    accepts(&with(HashFunction::DefaultHash as i32));
    for function in [HashFunction::MurmurHash2 as i32, 9] {
        rejects(&with(function), &format!("{FIRST}.hash_function"), "must be XX_HASH");
    }
    let old = RingHashLbConfig { hash_function: 1, ..Default::default() };
    let old = wire::Cluster {
        lb_policy: LegacyPolicy::RingHash as i32,
        lb_config: Some(LbConfig::RingHashLbConfig(old)),
        ..eds_cluster()
    };
    rejects(&old, "ring_hash_lb_config.hash_function", "must be XX_HASH");
}
