//! gRFC A27 over real sockets: the requested resources and their names, and the destinations of RPCs.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::core::v3::api_config_source::ApiType;
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{ApiConfigSource, ConfigSource, PathConfigSource};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, Rds};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane, EDS, LDS, RDS, Resource, dead_address};
use tonic::Code;

/// Every config source other than the stream in use.
fn other_sources() -> Vec<ConfigSource> {
    let api = |api_type: ApiType| {
        let source = ApiConfigSource { api_type: api_type.into(), ..Default::default() };
        ConfigSourceSpecifier::ApiConfigSource(source)
    };
    let file = PathConfigSource { path: "/resources".into(), ..Default::default() };
    let specifiers = [ConfigSourceSpecifier::PathConfigSource(file), api(ApiType::Rest), api(ApiType::Grpc)];
    specifiers
        .into_iter()
        .map(|specifier| ConfigSource { config_source_specifier: Some(specifier), ..ConfigSource::default() })
        .collect()
}

#[tokio::test]
async fn a27_04_files_rest_and_streams_per_type_are_refused() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    for source in other_sources() {
        let rds = Rds { config_source: Some(source.clone()), route_config_name: "route".into() };
        let manager = HttpConnectionManager {
            route_specifier: Some(RouteSpecifier::Rds(rds)),
            ..connection_manager("route")
        };
        plane.set(listener_with(SERVICE, &manager));
        let nack = plane.wait_nack(LDS).await?;
        let why = &nack.error().ok_or("no error")?.message;
        assert!(why.contains("config_source"), "{source:?}: {why}");

        let mut cluster = eds_cluster("cluster");
        cluster.eds_cluster_config.get_or_insert_default().eds_config = Some(source.clone());
        plane.set(cluster);
        let nack = plane.wait_nack(CDS).await?;
        let why = &nack.error().ok_or("no error")?.message;
        assert!(why.contains("eds_config"), "{source:?}: {why}");
    }
    assert_eq!(ask(&channel).await?, "a", "the last good resources stay in use");
    Ok(())
}

#[tokio::test]
async fn a27_06_routes_clusters_and_endpoints_share_one_client() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a]).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    // A second cluster, from a new route: still the same client.
    plane.set_all([
        eds_cluster("second").into(),
        priorities("second", [[&b]]).into(),
        simple_route_config("route", "second").into(),
    ]);
    until_only(&channel, &["b"]).await;
    assert_eq!((plane.connections(), plane.streams_opened()), (1, 1));
    let types: BTreeSet<_> = plane.requests().iter().map(|request| request.type_url().to_owned()).collect();
    assert_eq!(types, [LDS, RDS, CDS, EDS].map(String::from).into());
    Ok(())
}

#[tokio::test]
async fn a27_37_routes_are_asked_for_when_the_listener_only_names_them() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a]).await;
    plane.set_all([
        simple_route_config("other-route", "other").into(),
        eds_cluster("other").into(),
        priorities("other", [[&b]]).into(),
    ]);
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!(plane.subscriptions(RDS), ["route".to_owned()].into());
    // Renamed, then without a name.
    plane.set(listener(SERVICE, "other-route"));
    until_only(&channel, &["b"]).await;
    plane.wait_subscriptions(RDS, &["other-route"]).await?;
    plane.set(listener(SERVICE, simple_route_config("inline", "cluster")));
    until_only(&channel, &["a"]).await;
    plane.wait_subscriptions(RDS, &[]).await?;
    Ok(())
}

#[tokio::test]
async fn a27_49_load_goes_to_the_ads_server_or_nowhere() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[&a]).await;
    plane.set(priorities("elsewhere", [[&b]]));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    for source in other_sources().into_iter().chain([ads_source()]) {
        let mut cluster = eds_cluster("cluster").eds_service_name("elsewhere");
        cluster.lrs_server = Some(source);
        plane.set(cluster);
        let nack = plane.wait_nack(CDS).await?;
        let why = &nack.error().ok_or("no error")?.message;
        assert!(why.contains("lrs_server") && why.contains("must be self"), "{why}");
        assert_eq!(ask(&channel).await?, "a", "the last good cluster stays in use");
    }
    plane.set(eds_cluster("cluster").eds_service_name("elsewhere").report_load());
    plane.wait_ack(CDS).await?;
    until_only(&channel, &["b"]).await;
    Ok(())
}

#[tokio::test]
async fn a27_53_localities_of_a_priority_share_by_weight() -> TestResult {
    let (heavy, light) = (Backend::start("heavy").await?, Backend::start("light").await?);
    let lower = Backend::start("lower").await?;
    let plane = mesh(&[]).await;
    plane.set(assignment(
        "cluster",
        [
            locality("heavy", [&heavy]).weight(3),
            locality("light", [&light]).weight(1),
            locality("lower", [&lower]).weight(1000).priority(1),
        ],
    ));
    let channel = channel(&plane);
    until_only(&channel, &["heavy", "light"]).await;
    let share = spread(&channel, 600).await["heavy"];
    // 450 expected; the deviation is 10.6.
    assert!((380..520).contains(&share), "{share} of 600");
    assert_eq!(lower.count(), 0, "weights count inside their priority only");
    Ok(())
}

#[tokio::test]
async fn a27_53_a27_97_a42_localities_of_ring_hash_share_by_weight() -> TestResult {
    let (heavy, light) = (Backend::start("heavy").await?, Backend::start("light").await?);
    let plane = mesh(&[]).await;
    plane.set_all([
        eds_cluster("cluster").lb_policy(wrr_locality(ring_hash(16..=1024))).into(),
        assignment("cluster", [locality("heavy", [&heavy]).weight(3), locality("light", [&light]).weight(1)])
            .into(),
    ]);
    let channel = channel(&plane);
    // Each connects when the first RPC picks it.
    until_only(&channel, &["heavy", "light"]).await;
    let share = spread(&channel, 600).await["heavy"];
    // 450 expected; the deviation is 10.6.
    assert!((380..520).contains(&share), "{share} of 600");
    Ok(())
}

#[tokio::test]
async fn a52_the_policy_of_localities_works_inside_itself() -> TestResult {
    let (heavy, light) = (Backend::start("heavy").await?, Backend::start("light").await?);
    let plane = mesh(&[]).await;
    plane.set(assignment(
        "cluster",
        [locality("heavy", [&heavy]).weight(3), locality("light", [&light]).weight(1)],
    ));
    for policy in [
        wrr_locality(wrr_locality(round_robin())),
        wrr_locality(wrr_locality(wrr_locality(round_robin()))),
        wrr_locality(wrr_locality(ring_hash(16..=1024))),
    ] {
        plane.set(eds_cluster("cluster").lb_policy(policy));
        let channel = channel(&plane);
        until_only(&channel, &["heavy", "light"]).await;
        let share = spread(&channel, 400).await["heavy"];
        // 300 expected; the deviation is 8.7.
        assert!((240..360).contains(&share), "{share} of 400");
    }
    Ok(())
}

#[tokio::test]
async fn a27_54_a_locality_keeps_its_share_when_most_of_it_is_dead() -> TestResult {
    let (rest, whole) = (Backend::start("rest").await?, Backend::start("whole").await?);
    let dead = [dead_address()?, dead_address()?, dead_address()?];
    let plane = mesh(&[]).await;
    let mostly_dead = locality("mostly-dead", dead.iter().map(endpoint).chain([endpoint(&rest)]));
    plane.set(assignment("cluster", [mostly_dead, locality("whole", [&whole])]));
    let channel = channel(&plane);
    until_only(&channel, &["rest", "whole"]).await;
    let share = spread(&channel, 600).await["rest"];
    // 300 expected, with a deviation of 12. Under Envoy's overprovisioning (0.25 * 1.4) it would be 156.
    assert!((230..370).contains(&share), "{share} of 600");
    Ok(())
}

#[tokio::test]
async fn a27_55_a27_107_nothing_spills_over_whatever_the_overprovisioning_factor() -> TestResult {
    let (near, far, dead) = (Backend::start("near").await?, Backend::start("far").await?, dead_address()?);
    let plane = mesh(&[]).await;
    let half_dead = locality("near", [endpoint(&near), endpoint(&dead)]);
    let mut endpoints = assignment("cluster", [half_dead, locality("far", [&far]).priority(1)]);
    // By Envoy's rule half of the traffic would go to the next priority.
    endpoints.policy.get_or_insert_default().overprovisioning_factor.get_or_insert_default().value = 100;
    plane.set(endpoints);
    let channel = channel(&plane);
    let answers = spread(&channel, 100).await;
    assert_eq!(answers, [("near".to_owned(), 100)].into());
    assert_eq!(far.connections_accepted(), 0, "the next priority is not even connected to");
    Ok(())
}

/// The resource with a field that no version of its message has.
fn with_unknown_field(resource: impl Into<Resource>) -> Resource {
    let resource = resource.into();
    let mut value = resource.value().clone();
    // Field 1000, a varint: 1.
    value.value.extend([0xC0, 0x3E, 0x01]);
    Resource::raw(resource.type_url(), resource.name(), value)
}

#[tokio::test]
async fn a27_60_unsupported_and_unknown_fields_are_ignored() -> TestResult {
    let backend = Backend::start("a").await?;
    let manager = HttpConnectionManager {
        stat_prefix: "prefix".into(),
        server_name: "server".into(),
        via: "via".into(),
        ..connection_manager("route")
    };
    let mut listener = listener_with(SERVICE, &manager);
    listener.stat_prefix = "prefix".into();
    listener.per_connection_buffer_limit_bytes.get_or_insert_default().value = 1;
    listener.listener_filters_timeout = Some(duration(Duration::from_secs(1)));

    let mut host = virtual_host(["*"], [route("cluster")]);
    host.request_headers_to_remove.push("x-removed".into());
    host.include_request_attempt_count = true;
    let mut routes = route_config("route", [host]);
    routes.internal_only_headers.push("x-internal".into());
    routes.response_headers_to_remove.push("x-removed".into());

    let mut cluster = eds_cluster("cluster");
    cluster.alt_stat_name = "stats".into();
    cluster.connect_timeout = Some(duration(Duration::from_secs(1)));
    cluster.health_checks.push(Default::default());
    cluster.common_lb_config = Some(Default::default());
    cluster.ignore_health_on_host_removal = true;

    let mut near = locality("near", [endpoint(&backend)]);
    near.proximity.get_or_insert_default().value = 7;
    let mut endpoints = assignment("cluster", [near]);
    endpoints.named_endpoints.insert("name".into(), Default::default());
    endpoints.policy.get_or_insert_default().endpoint_stale_after = Some(duration(Duration::from_millis(1)));

    let plane = ControlPlane::start().await?;
    plane.set_all([
        with_unknown_field(listener),
        with_unknown_field(routes),
        with_unknown_field(cluster),
        with_unknown_field(endpoints),
    ]);
    assert_eq!(ask(&channel(&plane)).await?, "a");
    let rejected: Vec<_> = plane.requests().into_iter().filter(|request| request.is_nack()).collect();
    assert!(rejected.is_empty(), "{rejected:?}");
    Ok(())
}

/// The control plane sends resources of similar names only: they are accepted, and not used.
async fn with_similar_names(plane: &ControlPlane, type_url: &str, similar: &[Resource]) -> TestResult {
    let channel = builder(plane).resource_timeout(Duration::from_millis(300)).build()?;
    let mut call = hold(&channel, 1);
    plane.wait_for_request(|request| request.type_url() == type_url).await?;
    let similar: Vec<_> = similar.iter().map(|resource| resource.value().clone()).collect();
    let nonces = plane.send(type_url, &similar);
    let answer =
        plane.wait_for_request(|request| nonces.iter().any(|nonce| nonce == request.nonce())).await?;
    assert!(!answer.is_nack(), "{answer:?}");
    let status = call.next().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("does not exist"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a27_65_a_listener_of_another_name_is_not_used() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.remove(LDS, SERVICE);
    let names = ["greeter.example", "GREETER.EXAMPLE:50051", "*", "greeter.example:50051."];
    with_similar_names(&plane, LDS, &names.map(|name| listener(name, "route").into())).await?;
    assert_eq!(plane.subscriptions(RDS), BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn a27_84_a_cluster_of_another_name_is_not_used() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.remove(CDS, "cluster");
    let names = ["Cluster", "cluster ", "clusters", "*"];
    with_similar_names(&plane, CDS, &names.map(|name| eds_cluster(name).into())).await?;
    assert_eq!(plane.subscriptions(EDS), BTreeSet::new());
    Ok(())
}

#[tokio::test]
async fn a27_72_a27_82_names_are_asked_for_exactly_as_given() -> TestResult {
    let (routes, cluster, endpoints) =
        ("Route A/β?x=1&y=%20", "outbound|80||CLUSTER.Test ", "service name/*");
    let backend = Backend::start("a").await?;
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener(SERVICE, routes).into(),
        simple_route_config(routes, cluster).into(),
        eds_cluster(cluster).eds_service_name(endpoints).into(),
        priorities(endpoints, [[&backend]]).into(),
    ]);
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    for (type_url, name) in [(RDS, routes), (CDS, cluster), (EDS, endpoints)] {
        let mut asked = plane.requests();
        asked.retain(|request| request.type_url() == type_url);
        assert!(!asked.is_empty() && asked.iter().all(|request| request.names() == [name]), "{asked:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a27_98_the_priority_is_read_and_absent_means_the_highest() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[]).await;
    let unset = |zone: &str, backend: &Backend| {
        let locality = locality(zone, [backend]);
        assert_eq!(locality.priority, 0, "what proto3 leaves out");
        locality
    };
    // The number counts, not the order in the message.
    plane.set(assignment("cluster", [locality("a", [&a]).priority(1), unset("b", &b)]));
    let channel = channel(&plane);
    assert_eq!(spread(&channel, 20).await, [("b".to_owned(), 20)].into());
    plane.set(assignment("cluster", [unset("a", &a), locality("b", [&b]).priority(1)]));
    until_only(&channel, &["a"]).await;
    Ok(())
}
