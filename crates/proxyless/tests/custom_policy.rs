//! Load balancing policies of the application (gRFC A52), over real sockets.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::load_balancing_policy::Policy as ListedPolicy;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use proxyless::policy::{
    Balance, Balanced, Below, ConfigError, ConfigReader, Cx, Endpoints, Fields, InvalidConfig, Layer,
    Layered, PickArgs, PickResult, Picker, PolicyConfig, PolicyEvent, ReadyEndpoint, Registry, Update,
    config_of, policy_config,
};
use proxyless::{BuildError, ClientPool, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Code;

/// Sends all RPCs to the endpoint with this number, by address.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct NthConfig {
    n: usize,
    /// Whether the picker, or the policy, panics.
    #[serde(default)]
    panics: Option<Panics>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Panics {
    Picker,
    Policy,
    Parser,
}

policy_config!(NthConfig, Nth::NAME, Balanced::<Nth>::default(), |config| {
    Fields::from_iter([("n", json!(config.n))])
});

#[derive(Default)]
struct Nth;

impl Balance for Nth {
    const NAME: &'static str = "test.Nth";
    type Config = NthConfig;

    fn picker(
        &mut self,
        config: &NthConfig,
        mut ready: Vec<ReadyEndpoint>,
        cx: &mut dyn Cx,
    ) -> Arc<dyn Picker> {
        assert!(config.panics != Some(Panics::Policy), "the policy, on purpose");
        ready.sort_by(|a, b| a.endpoint.addresses.cmp(&b.endpoint.addresses));
        let text = format!("picks number {} of {}", config.n, ready.len());
        cx.record(PolicyEvent::Noted { policy: Self::NAME, text });
        Arc::new(NthPicker {
            panics: AtomicBool::new(config.panics == Some(Panics::Picker)),
            n: config.n,
            ready,
        })
    }
}

struct NthPicker {
    /// Whether the next pick panics.
    panics: AtomicBool,
    n: usize,
    ready: Vec<ReadyEndpoint>,
}

impl Picker for NthPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "the picker, on purpose");
        // Not all are connected at first.
        self.ready.get(self.n).map_or(PickResult::Queue, |ready| ready.pick(args))
    }
}

fn parse_nth(config: &mut ConfigReader<'_>) -> Result<NthConfig, InvalidConfig> {
    let parsed: NthConfig = config.read()?;
    assert!(parsed.panics != Some(Panics::Parser), "the parser, on purpose");
    if parsed.n > 9 {
        return Err(InvalidConfig::at("n", "must not be greater than 9"));
    }
    Ok(parsed)
}

/// Leaves the first endpoint of each list out, and passes the rest to its child.
#[derive(Default)]
struct Rest;

#[derive(Debug)]
struct RestConfig(Arc<dyn PolicyConfig>);

impl PartialEq for RestConfig {
    fn eq(&self, other: &Self) -> bool {
        *self.0 == *other.0
    }
}

policy_config!(RestConfig, "test.Rest", Layered::<Rest>::default());

impl Layer for Rest {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let RestConfig(child) = config_of("test.Rest", &update.config)?;
        let endpoints = rest(&update.endpoints);
        below.update(&Update { config: Arc::clone(child), endpoints, ..update.clone() }, self, cx)
    }
}

fn rest(endpoints: &Endpoints) -> Endpoints {
    match endpoints {
        Endpoints::List(list) => Endpoints::List(list.iter().skip(1).cloned().collect()),
        Endpoints::Groups(groups) => {
            let mut groups = groups.to_vec();
            groups.iter_mut().for_each(|group| group.endpoints = rest(&group.endpoints));
            Endpoints::Groups(groups.into())
        }
    }
}

fn registry() -> Registry {
    Registry::new()
        .register("test.Nth", parse_nth)
        .register("test.Rest", |config| Ok(RestConfig(config.child("childPolicy")?)))
}

fn nth(config: Value) -> TypedExtensionConfig {
    custom_policy("test.Nth", &config)
}

fn channel_with(plane: &ControlPlane, registry: Registry) -> XdsChannel {
    builder(plane).policies(registry).build().expect("a valid registry")
}

/// Backends in the order of their addresses.
async fn backends<const N: usize>() -> Result<[Backend; N], Box<dyn std::error::Error>> {
    let mut backends = Vec::new();
    for number in 0..N {
        backends.push(Backend::start(&format!("backend {number}")).await?);
    }
    backends.sort_by_key(Backend::address);
    backends.try_into().map_err(|_| "so many were started".into())
}

fn cluster_with(policies: impl IntoIterator<Item = TypedExtensionConfig>) -> Cluster {
    let mut cluster = eds_cluster("cluster").lb_policy(round_robin());
    let listed = policies.into_iter().map(|policy| ListedPolicy { typed_extension_config: Some(policy) });
    cluster.load_balancing_policy.as_mut().expect("a list").policies = listed.collect();
    cluster
}

#[tokio::test]
async fn a52_05_a52_14_a_custom_policy_picks_among_all_endpoints_of_a_priority() -> TestResult {
    let [a, b, c] = &backends().await?;
    let plane = mesh(&[]).await;
    plane.set(assignment("cluster", [locality("one", [c, a]), locality("two", [b])]));
    plane.set(cluster_with([nth(json!({"n": 0}))]));
    let channel = channel_with(&plane, registry());
    until_only(&channel, &[a.name()]).await;
    // Its configuration changes while RPCs run; the other kind of TypedStruct means the same.
    let mut policy = nth(json!({"n": 2}));
    policy.typed_config.as_mut().expect("a config").type_url =
        "type.googleapis.com/udpa.type.v1.TypedStruct".into();
    plane.set(cluster_with([policy]));
    until_only(&channel, &[c.name()]).await;
    // An endpoint joins, before the others.
    plane.set(assignment("cluster", [locality("two", [b, c])]));
    plane.set(cluster_with([nth(json!({"n": 0}))]));
    until_only(&channel, &[b.name()]).await;

    let view = channel.describe().await.ok_or("no report")?;
    let tree = view.tree.to_string();
    assert!(tree.contains("test.Nth READY") && tree.contains("n=0"), "{tree}");
    let noted = view.events.iter().any(|event| event.description == "test.Nth: picks number 0 of 2");
    assert!(noted, "{:?}", view.events);
    Ok(())
}

#[tokio::test]
async fn a52_11_a52_13_a_custom_policy_picks_within_weighted_localities() -> TestResult {
    let [a, b, c, d] = &backends().await?;
    let plane = mesh(&[]).await;
    plane.set(assignment("cluster", [locality("one", [a, b]), locality("two", [c, d])]));
    plane.set(cluster_with([wrr_locality(nth(json!({"n": 1})))]));
    let channel = channel_with(&plane, registry());
    until_only(&channel, &[b.name(), d.name()]).await;
    Ok(())
}

#[tokio::test]
async fn a52_11_a_custom_parent_has_children_of_grpc_and_of_the_application() -> TestResult {
    let [a, b, c] = &backends().await?;
    let plane = mesh(&[a, b, c]).await;
    let rest = |child| custom_policy("test.Rest", &json!({"childPolicy": [{"test.Unknown": {}}, child]}));
    plane.set(cluster_with([rest(json!({"round_robin": {}}))]));
    let channel = channel_with(&plane, registry());
    until_only(&channel, &[b.name(), c.name()]).await;
    plane.set(cluster_with([rest(json!({"test.Nth": {"n": 1}}))]));
    until_only(&channel, &[c.name()]).await;
    // A child that picks localities: the parent sees them.
    let inner = json!({"xds_wrr_locality_experimental": {"childPolicy": [{"round_robin": {}}]}});
    plane.set(cluster_with([rest(inner)]));
    until_only(&channel, &[b.name(), c.name()]).await;
    let tree = channel.tree().await.ok_or("no tree")?.to_string();
    let places: Vec<_> = ["test.Rest", "xds_wrr_locality", "round_robin"].map(|name| tree.find(name)).into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{tree}");
    Ok(())
}

#[tokio::test]
async fn a52_02_a52_08_a_bad_configuration_is_nacked_and_the_last_good_one_serves() -> TestResult {
    let [a, b] = &backends().await?;
    let plane = mesh(&[a, b]).await;
    plane.set(cluster_with([nth(json!({"n": 1}))]));
    let pool = ClientPool::new();
    let channel = builder(&plane).policies(registry()).client_pool(pool.clone()).build()?;
    until_only(&channel, &[b.name()]).await;
    let value = "load_balancing_policy.policies[0].typed_extension_config.typed_config.value";
    for (config, reason) in [
        (json!({"n": 10}), format!(r#"{value}["n"]: must not be greater than 9"#)),
        (json!({"n": "x"}), format!(r#"{value}["n"]: invalid type: string "x", expected usize"#)),
        (json!({}), format!("{value}: missing field `n`")),
        // A parser that panics is not the end of the xDS client.
        (
            json!({"n": 1, "panics": "parser"}),
            format!("{value}: the parser of test.Nth panicked: the parser, on purpose"),
        ),
    ] {
        // Not passed over for the policy after it.
        plane.set(cluster_with([nth(config), round_robin()]));
        plane
            .wait_for_request(|request| {
                request.is_nack() && request.error().is_some_and(|error| error.message.contains(&reason))
            })
            .await?;
        assert_eq!(spread(&channel, 10).await, [(b.name().to_owned(), 10)].into());
        // As in CSDS.
        let clients = pool.clients().await;
        let cluster =
            clients[0].resources.iter().find(|resource| resource.type_url == CDS).ok_or("no Cluster")?;
        let error = cluster.error.as_ref().ok_or("no error")?;
        assert!(error.reason.contains(&reason), "{}", error.reason);
    }
    assert_eq!(plane.streams_opened(), 1);
    plane.set(cluster_with([nth(json!({"n": 0}))]));
    until_only(&channel, &[a.name()]).await;
    Ok(())
}

#[tokio::test]
async fn a52_04_a52_07_unknown_policies_are_skipped_and_a_list_of_them_is_nacked() -> TestResult {
    let [a, b] = &backends().await?;
    let plane = mesh(&[a, b]).await;
    let unknown = |name| custom_policy(name, &json!({}));
    plane.set(cluster_with([unknown("other.One"), nth(json!({"n": 1})), round_robin()]));
    let channel = channel_with(&plane, registry());
    until_only(&channel, &[b.name()]).await;
    // The same cluster for a client without the policy.
    until_only(&common::channel(&plane), &[a.name(), b.name()]).await;
    plane.set(cluster_with([unknown("other.One"), unknown("other.Two")]));
    plane
        .wait_for_request(|request| {
            let names = r#"no policy of the list is supported: "other.One", "other.Two""#;
            request.is_nack() && request.error().is_some_and(|error| error.message.contains(names))
        })
        .await?;
    assert_eq!(spread(&channel, 10).await, [(b.name().to_owned(), 10)].into());
    Ok(())
}

#[tokio::test]
async fn a52_16_a_name_of_grpc_is_refused_when_the_channel_is_built() -> TestResult {
    let plane = mesh(&[]).await;
    let registry = registry().register("round_robin", parse_nth).register("test.Nth", parse_nth);
    let error = builder(&plane).policies(registry).build().expect_err("taken names");
    assert!(matches!(error, BuildError::Policies(_)), "{error:?}");
    let expected = "invalid registry of load balancing policies: \
        \"round_robin\" is a policy of gRPC itself: use a name in a package of your own; \
        \"test.Nth\" is registered twice";
    assert_eq!(error.to_string(), expected);
    Ok(())
}

#[tokio::test]
async fn channels_share_a_client_if_they_have_the_same_registry() -> TestResult {
    let [a, b] = &backends().await?;
    let plane = mesh(&[a, b]).await;
    plane.set(cluster_with([nth(json!({"n": 1})), round_robin()]));
    let pool = ClientPool::new();
    let build = |registry| builder(&plane).client_pool(pool.clone()).policies(registry).build();
    let shared = registry();
    let (one, two) = (build(shared.clone())?, build(shared.clone())?);
    until_only(&one, &[b.name()]).await;
    until_only(&two, &[b.name()]).await;
    assert_eq!(plane.streams_opened(), 1);
    // Each judges the Cluster by its own registry.
    let (other, none) = (build(registry())?, build(Registry::new())?);
    until_only(&other, &[b.name()]).await;
    until_only(&none, &[a.name(), b.name()]).await;
    assert_eq!(plane.streams_opened(), 3);
    until_only(&one, &[b.name()]).await;
    Ok(())
}

#[tokio::test]
async fn a_policy_that_panics_fails_its_rpcs_and_not_for_ever() -> TestResult {
    let [a, b] = &backends().await?;
    let plane = mesh(&[a, b]).await;
    plane.set(cluster_with([nth(json!({"n": 1}))]));
    let pool = ClientPool::new();
    let build = || builder(&plane).client_pool(pool.clone()).policies(registry()).build();
    let channel = build()?;
    until_only(&channel, &[b.name()]).await;

    // The picker: the RPC fails, the task that made it lives on, and so does the channel.
    plane.set(cluster_with([nth(json!({"n": 1, "panics": "picker"}))]));
    let failed = until_failure(&channel, "the picker, on purpose").await;
    assert_eq!(failed.code(), Code::Internal);
    assert_eq!(ask(&channel).await?, b.name());

    // The policy: the task of the channel starts again, with the configuration of that time.
    plane.set(cluster_with([nth(json!({"n": 1, "panics": "policy"}))]));
    let failed = until_failure(&channel, "the policy, on purpose").await;
    assert_eq!(failed.code(), Code::Unavailable);
    plane.set(cluster_with([nth(json!({"n": 0}))]));
    until_only(&channel, &[a.name()]).await;
    let view = channel.describe().await.ok_or("no report")?;
    assert!(view.restarts >= 1, "{view:?}");
    Ok(())
}
