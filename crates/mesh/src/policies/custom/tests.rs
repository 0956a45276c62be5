//! A registry behind the real parser of Cluster resources.

use std::sync::Arc;

use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy as ListedPolicy;
use envoy_types::pb::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{AggregatedConfigSource, ConfigSource, TypedExtensionConfig};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Any, ListValue, Struct, Value};
use prost::Message as _;
use proxyless_balancer::api::{
    Below, ConfigError, Cx, Endpoints, Group, Layer, Layered, PolicyConfig, Update, config_of,
};
use proxyless_balancer::testing::{Bench, address, endpoints};
use proxyless_xds::resource::{DecodeContext, LbPolicy, Resource, ResourceType, decode};
use serde::Deserialize;
use serde_json::json;

use super::{InvalidConfig, Registry};
use crate::endpoints::Grouping;
use crate::policies::lb_policy::{grouping, policy_config};

const NAME: &str = "test.Sized";

/// `xds.type.v3.TypedStruct`, which envoy-types does not have.
#[derive(Clone, PartialEq, prost::Message)]
struct TypedStruct {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Struct>,
}

/// A policy that passes everything to its child.
#[derive(Default)]
struct Pass;

#[derive(Debug)]
struct PassConfig {
    size: u32,
    child: Arc<dyn PolicyConfig>,
}

impl PartialEq for PassConfig {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && *self.child == *other.child
    }
}

proxyless_balancer::policy_config!(PassConfig, NAME, Layered::<Pass>::default());

impl Layer for Pass {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &PassConfig = config_of(NAME, &update.config)?;
        below.update(&Update { config: Arc::clone(&config.child), ..update.clone() }, self, cx)
    }
}

#[derive(Deserialize)]
struct Json {
    size: u32,
    #[serde(default)]
    panic: Option<String>,
}

fn registry() -> Registry {
    let registry = Registry::new().register(NAME, |config| {
        let json: Json = config.read()?;
        assert!(json.panic.is_none(), "on purpose: {}", json.panic.unwrap_or_default());
        if json.size == 0 {
            return Err(InvalidConfig::at("size", "must not be 0").and("and so on".into()));
        }
        Ok(PassConfig { size: json.size, child: config.child("childPolicy")? })
    });
    registry.register("test.Liar", |config| Ok(PassConfig { size: 1, child: config.child("childPolicy")? }))
}

fn value(json: &serde_json::Value) -> Value {
    let kind = match json {
        serde_json::Value::Null => Kind::NullValue(0),
        serde_json::Value::Bool(value) => Kind::BoolValue(*value),
        serde_json::Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a small number")),
        serde_json::Value::String(text) => Kind::StringValue(text.clone()),
        serde_json::Value::Array(list) => {
            Kind::ListValue(ListValue { values: list.iter().map(value).collect() })
        }
        serde_json::Value::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(name, json)| (name.clone(), value(json))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

/// The policy of a Cluster whose list has one TypedStruct, or the violations.
fn parse(name: &str, json: &serde_json::Value) -> Result<LbPolicy, String> {
    let Some(Kind::StructValue(fields)) = value(json).kind else { panic!("not an object") };
    let typed = TypedStruct { type_url: format!("type.googleapis.com/{name}"), value: Some(fields) };
    let any =
        Any { type_url: "type.googleapis.com/xds.type.v3.TypedStruct".into(), value: typed.encode_to_vec() };
    let listed = ListedPolicy {
        typed_extension_config: Some(TypedExtensionConfig { name: "x".into(), typed_config: Some(any) }),
    };
    let ads = ConfigSourceSpecifier::Ads(AggregatedConfigSource::default());
    let eds_config = Some(ConfigSource { config_source_specifier: Some(ads), ..ConfigSource::default() });
    let cluster = Cluster {
        name: "cluster".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig { eds_config, ..EdsClusterConfig::default() }),
        load_balancing_policy: Some(LoadBalancingPolicy { policies: vec![listed] }),
        ..Cluster::default()
    };
    let cx = DecodeContext { policies: registry().for_client(), ..DecodeContext::default() };
    let kind = ResourceType::Cluster;
    match decode(kind, kind.type_url(), &cluster.encode_to_vec(), &cx).resource {
        Ok(Resource::Cluster(cluster)) => Ok(cluster.lb_policy.clone().expect("a policy")),
        Ok(other) => panic!("{other:?}"),
        Err(violations) => Err(violations.to_string()),
    }
}

const VALUE: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config.value";

#[track_caller]
fn rejects(name: &str, json: serde_json::Value, expected: &str) {
    assert_eq!(parse(name, &json).expect_err("invalid"), expected.replace("$", VALUE));
}

#[test]
fn a52_06_a_configuration_reaches_the_policy() {
    let policy = parse(NAME, &json!({"size": 3, "childPolicy": [{"round_robin": {}}]})).expect("valid");
    let config = policy_config(&policy).expect("from the registry");
    assert_eq!(config.policy_name(), NAME);
    let config: &PassConfig = config_of(NAME, &config).expect("its own");
    assert_eq!((config.size, config.child.policy_name()), (3, "round_robin"));
}

#[test]
fn a52_02_a52_08_an_invalid_configuration_is_rejected_with_the_reasons_of_its_parser() {
    rejects(NAME, json!({"size": 0}), r#"$["size"]: must not be 0; $: and so on"#);
    rejects(NAME, json!({}), "$: missing field `size`");
    // The field that serde's own message does not name.
    rejects(NAME, json!({"a": 1, "size": "x"}), r#"$["size"]: invalid type: string "x", expected u32"#);
    rejects(NAME, json!({"size": 2.5}), r#"$["size"]: invalid type: floating point `2.5`, expected u32"#);
    rejects(NAME, json!({"size": 1}), r#"$["childPolicy"]: must be set"#);
    rejects(
        NAME,
        json!({"size": 1, "childPolicy": [{"test.None": {}}]}),
        r#"$["childPolicy"]: no policy of the list is supported: "test.None""#,
    );
    rejects(
        NAME,
        json!({"size": 1, "childPolicy": [{"test.Sized": {"size": 0}}]}),
        r#"$["childPolicy"][0]["test.Sized"]["size"]: must not be 0; $["childPolicy"][0]["test.Sized"]: and so on"#,
    );
}

#[test]
fn a_parser_that_panics_has_rejected_the_resource() {
    rejects(NAME, json!({"size": 1, "panic": "oh"}), "$: the parser of test.Sized panicked: on purpose: oh");
}

#[test]
fn a_configuration_of_a_different_policy_is_a_bug_of_the_client() {
    rejects(
        "test.Liar",
        json!({"childPolicy": [{"round_robin": {}}]}),
        "$: the parser of test.Liar returned the configuration of test.Sized, which is a bug of the client",
    );
}

#[test]
fn a52_11_endpoints_come_by_locality_where_a_descendant_picks_localities() {
    let wrr = |child| json!([{"xds_wrr_locality_experimental": {"childPolicy": child}}]);
    let pass = |child| json!({"size": 1, "childPolicy": child});
    let flat = parse(NAME, &pass(json!([{"round_robin": {}}]))).expect("valid");
    assert_eq!(grouping(&flat), Grouping::Flat);
    let inner = wrr(json!([{"round_robin": {}}]));
    let one = parse(NAME, &pass(inner.clone())).expect("valid");
    let between =
        parse("xds_wrr_locality_experimental", &json!({"childPolicy": [{"test.Sized": pass(inner)}]}))
            .expect("valid");
    let group =
        |name: &str, n| Group { name: name.into(), weight: 1, locality: None, endpoints: endpoints([n]) };
    for policy in [one, between] {
        assert_eq!(grouping(&policy), Grouping::Localities);
        let mut bench = Bench::new();
        let localities = Endpoints::Groups([group("a", 1), group("b", 2)].into());
        bench.update(policy_config(&policy).expect("from the registry"), localities);
        bench.ready_all();
        assert_eq!(bench.picked(100), [address(1), address(2)].into());
    }
}

#[test]
fn equal_configurations_are_equal() {
    let policy = |size| parse(NAME, &json!({"size": size, "childPolicy": [{"round_robin": {}}]}));
    assert_eq!(policy(1), policy(1));
    assert_ne!(policy(1), policy(2));
}

#[test]
fn a52_16_names_that_cannot_be_registered_are_told_all_at_once() {
    let parser = |_: &mut super::ConfigReader<'_>| Err::<PassConfig, _>("never".into());
    let registry = Registry::new()
        .register("round_robin", parser)
        .register("myorg/MyPolicy", parser)
        .register("", parser)
        .register("myorg.Fine", parser)
        .register("myorg.Fine", parser)
        .register("priority_experimental", parser);
    let expected = "invalid registry of load balancing policies: \
        \"round_robin\" is a policy of gRPC itself: use a name in a package of your own; \
        \"myorg/MyPolicy\" is not a valid name of a protobuf message, such as \"myorg.MyPolicy\"; \
        \"\" is not a valid name of a protobuf message, such as \"myorg.MyPolicy\"; \
        \"myorg.Fine\" is registered twice; \
        \"priority_experimental\" is a policy of gRPC itself: use a name in a package of your own";
    assert_eq!(registry.check().expect_err("invalid").to_string(), expected);
    assert_eq!(super::tests::registry().check(), Ok(()));
}

#[test]
fn registries_are_equal_by_identity() {
    let one = registry();
    assert_eq!(one, one.clone());
    assert_ne!(one, registry());
    assert_ne!(one, Registry::new());
    assert_eq!(Registry::new(), Registry::new());
    assert!(Registry::new().for_client().is_none());
}
