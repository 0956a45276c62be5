//! Policies of the application (gRFC A52), with an application whose parser this is.

use std::any::Any as StdAny;
use std::sync::Arc;

use prost::Message;
use serde_json::json;

use super::builders::any_of_type;
use super::lb_config::{FIRST, OUTER, by_name, cluster, round_robin, wrr_locality};
use super::{as_cluster, decode_message_with, rejects_with};
use crate::resource::extension::TypedStruct;
use crate::resource::{
    CustomConfig, CustomConfigReader, CustomPolicies, DecodeContext, LbPolicy, is_built_in_policy,
};

/// Has the policies `example.Custom`, which takes any configuration whose `bad` is not set, and
/// `example.Parent`, which has a child.
#[derive(Debug)]
struct Application;

#[derive(Debug, PartialEq)]
struct Config(String);

impl CustomConfig for Config {
    fn dyn_eq(&self, other: &dyn CustomConfig) -> bool {
        other.as_any().downcast_ref::<Self>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn StdAny {
        self
    }
}

impl CustomPolicies for Application {
    fn contains(&self, name: &str) -> bool {
        // Its own round_robin must not count: gRPC's is first.
        ["example.Custom", "example.Parent", "round_robin"].contains(&name)
    }

    fn parse(&self, name: &str, config: &mut CustomConfigReader<'_>) -> Option<Arc<dyn CustomConfig>> {
        if config.json().contains_key("bad") {
            config.reject(Some("bad"), "is bad");
            config.reject(None, "as a whole");
            return None;
        }
        if name == "example.Parent" {
            config.child("children")?;
        }
        Some(Arc::new(Config(serde_json::to_string(config.json()).expect("JSON"))))
    }
}

fn context() -> DecodeContext {
    DecodeContext { policies: Some(Arc::new(Application)), ..DecodeContext::default() }
}

fn accepted(configs: Vec<envoy_types::pb::google::protobuf::Any>) -> LbPolicy {
    let decoded = decode_message_with(&cluster(configs), &context()).expect("a valid cluster");
    as_cluster(decoded).lb_policy.clone().expect("a policy")
}

/// The name, the configuration as JSON, and the children of a custom policy.
fn parts(policy: &LbPolicy) -> (&str, &str, &[LbPolicy]) {
    let LbPolicy::Custom(custom) = policy else { panic!("{policy:?}") };
    let config: &Config = custom.config.as_any().downcast_ref().expect("our own");
    (&custom.name, &config.0, &custom.children)
}

#[test]
fn a52_05_a52_06_a_typed_struct_of_either_kind_configures_a_custom_policy() {
    let json = json!({"whole": 2, "half": 0.5, "big": 1e300, "list": [1, "x", null], "inner": {"yes": true}});
    for outer in OUTER {
        let policy = accepted(vec![by_name(outer, "example.Custom", json.clone())]);
        let expected = r#"{"big":1e+300,"half":0.5,"inner":{"yes":true},"list":[1,"x",null],"whole":2}"#;
        assert_eq!(parts(&policy), ("example.Custom", expected, &[][..]));
        // Without a value the configuration is empty.
        let empty = accepted(vec![by_name(outer, "example.Custom", json!(null))]);
        assert_eq!(parts(&empty), ("example.Custom", "{}", &[][..]));
    }
}

#[test]
fn a52_05_the_name_is_the_part_after_the_last_slash() {
    let typed = TypedStruct { type_url: "https://types.example/a/b/example.Custom".into(), value: None };
    let policy = accepted(vec![any_of_type(OUTER[0], &typed.encode_to_vec())]);
    assert_eq!(parts(&policy).0, "example.Custom");
}

#[test]
fn a52_04_unknown_policies_before_a_custom_one_are_skipped() {
    let custom = |name| by_name(OUTER[0], name, json!({}));
    let policy = accepted(vec![custom("example.Unknown"), custom("example.Custom"), round_robin()]);
    assert_eq!(parts(&policy).0, "example.Custom");
    // Not a TypedStruct: the message itself is not a policy.
    assert_eq!(accepted(vec![any_of_type("example.Custom", b""), round_robin()]), LbPolicy::RoundRobin);
    // Without a policy of that name the same list goes on to the next.
    let without = decode_message_with(
        &cluster(vec![custom("example.Custom"), round_robin()]),
        &DecodeContext::default(),
    );
    assert_eq!(as_cluster(without.expect("valid")).lb_policy, Some(LbPolicy::RoundRobin));
}

#[test]
fn a52_11_custom_policies_and_those_of_grpc_nest_in_each_other() {
    let policy = accepted(vec![wrr_locality(by_name(OUTER[0], "example.Custom", json!({})))]);
    let LbPolicy::WrrLocality(child) = &policy else { panic!("{policy:?}") };
    assert_eq!(parts(child).0, "example.Custom");
    let json = json!({"childPolicy": [{"example.Unknown": 1}, {"example.Custom": {"a": 1}}]});
    let policy = accepted(vec![by_name(OUTER[0], "xds_wrr_locality_experimental", json)]);
    let LbPolicy::WrrLocality(child) = &policy else { panic!("{policy:?}") };
    assert_eq!(parts(child), ("example.Custom", r#"{"a":1}"#, &[][..]));
    let json = json!({"children": [{"example.Unknown": 1}, {"round_robin": {}}]});
    let policy = accepted(vec![by_name(OUTER[0], "example.Parent", json)]);
    assert_eq!(parts(&policy).2, [LbPolicy::RoundRobin]);
}

#[test]
fn a52_08_a_parsers_errors_have_the_path_of_the_configuration() {
    let bad = by_name(OUTER[0], "example.Custom", json!({"bad": 1}));
    let found = decode_message_with(&cluster(vec![bad, round_robin()]), &context()).expect_err("bad");
    let expected = [(format!(r#"{FIRST}.value["bad"]"#), "is bad".to_owned()), {
        (format!("{FIRST}.value"), "as a whole".to_owned())
    }];
    assert_eq!(found, expected);
    let rejects = |name, json, path: &str, why| {
        let cluster = cluster(vec![by_name(OUTER[1], name, json)]);
        rejects_with(&cluster, &context(), &format!("{FIRST}.value{path}"), why);
    };
    rejects("example.Parent", json!({}), r#"["children"]"#, "must be set");
    rejects(
        "example.Parent",
        json!({"children": [{"b.B": {}}]}),
        r#"["children"]"#,
        r#"no policy of the list is supported: "b.B""#,
    );
    rejects(
        "example.Parent",
        json!({"children": [{"pick_first": {"shuffleAddressList": 1}}]}),
        r#"["children"][0]["pick_first"]["shuffleAddressList"]"#,
        "must be a bool",
    );
}

#[test]
fn a52_08_numbers_that_json_does_not_have_are_rejected() {
    use envoy_types::pb::google::protobuf::value::Kind;
    use envoy_types::pb::google::protobuf::{Struct, Value};
    for number in [f64::NAN, f64::INFINITY] {
        let value = Value { kind: Some(Kind::NumberValue(number)) };
        let typed = TypedStruct {
            type_url: "type.googleapis.com/example.Custom".into(),
            value: Some(Struct { fields: [("x".to_owned(), value)].into() }),
        };
        let cluster = cluster(vec![any_of_type(OUTER[0], &typed.encode_to_vec())]);
        let path = format!(r#"{FIRST}.value["x"]"#);
        rejects_with(&cluster, &context(), &path, "is not a number of JSON");
    }
}

#[test]
fn a52_03_custom_parents_count_as_levels() {
    let wrap = |child, _| json!({"example.Parent": {"children": [child]}});
    let parents = |levels: usize| {
        let whole = (1..levels).fold(json!({"round_robin": {}}), wrap);
        let inner = by_name(OUTER[0], "example.Parent", whole["example.Parent"].clone());
        cluster(vec![(0..8).fold(inner, |child, _| wrr_locality(child))])
    };
    decode_message_with(&parents(8), &context()).expect("sixteen levels");
    let found = decode_message_with(&parents(9), &context()).expect_err("too deep");
    assert!(found.len() == 1 && found[0].1.contains("nested deeper than 16 levels"), "{found:?}");
}

#[test]
fn equal_configurations_are_equal_policies() {
    let policy = |json| accepted(vec![by_name(OUTER[0], "example.Custom", json)]);
    assert_eq!(policy(json!({"a": 1})), policy(json!({"a": 1})));
    assert_ne!(policy(json!({"a": 1})), policy(json!({"a": 2})));
    assert_eq!(accepted(vec![by_name(OUTER[0], "round_robin", json!({}))]), LbPolicy::RoundRobin);
}

#[test]
fn names_of_built_in_policies_are_known() {
    for name in ["round_robin", "ring_hash_experimental", round_robin().type_url.rsplit('/').next().unwrap()]
    {
        assert!(is_built_in_policy(name), "{name}");
    }
    assert!(!is_built_in_policy("example.Custom"));
}
