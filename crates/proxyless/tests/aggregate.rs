//! Aggregate clusters over real sockets (gRFC A37, A75): leaves by EDS and by DNS, failover, limits and drops per leaf.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::route::v3::Route;
use proxyless::ChannelState;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, BlackHole, CDS, ControlPlane, EDS, LDS, RDS, Resource};
use tonic::Code;

/// A control plane that routes all of [`SERVICE`] to the cluster `root`.
async fn plane(resources: impl IntoIterator<Item = Resource>) -> ControlPlane {
    plane_with_routes([route("root")], resources).await
}

async fn plane_with_routes(
    routes: impl IntoIterator<Item = Route>,
    resources: impl IntoIterator<Item = Resource>,
) -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    let routes = route_config("route", [virtual_host(["*"], routes)]);
    plane.set_all([listener(SERVICE, "route").into(), routes.into()].into_iter().chain(resources));
    plane
}

/// An EDS cluster with this backend as its only endpoint.
fn leaf(name: &str, backend: impl IntoEndpoint) -> [Resource; 2] {
    [eds_cluster(name).into(), priorities(name, [[backend]]).into()]
}

/// A DNS cluster that resolves to this backend.
fn dns_leaf(name: &str, backend: &Backend) -> Cluster {
    logical_dns_cluster(name, "localhost", backend.address().port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_01_failover_from_eds_to_eds_to_dns_and_back_without_a_failed_rpc() -> TestResult {
    let (first, second) = (Backend::start("first").await?, Backend::start("second").await?);
    let last = Backend::start("last").await?;
    let plane =
        plane([aggregate_cluster("root", ["eds-1", "eds-2", "dns"]).into(), dns_leaf("dns", &last).into()])
            .await;
    plane.set_all(leaf("eds-1", &first));
    plane.set_all(leaf("eds-2", &second));
    let channel = channel(&plane);
    until_only(&channel, &["first"]).await;
    first.kill().await;
    until_only(&channel, &["second"]).await;
    second.kill().await;
    until_only(&channel, &["last"]).await;

    let load = Load::start(&channel, 4);
    for (backend, name) in [(&second, "second"), (&first, "first")] {
        backend.restart().await?;
        channel.reset_connect_backoff();
        until_only(&channel, &[name]).await;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    Ok(())
}

#[tokio::test]
async fn a37_03_a37_06_each_kind_of_cluster_gets_its_endpoints_in_its_own_way() -> TestResult {
    let (eds, dns) = (Backend::start("eds").await?, Backend::start("dns").await?);
    // Only an EDS cluster has an EDS service name.
    let plane = plane_with_routes(
        [route_for("eds", "eds"), route_for("dns", "dns"), route("aggregate")],
        [
            eds_cluster("eds").eds_service_name("service-of-eds").into(),
            priorities("service-of-eds", [[&eds]]).into(),
            dns_leaf("dns", &dns).eds_service_name("service-of-dns").into(),
            aggregate_cluster("aggregate", ["dns", "eds"]).eds_service_name("service-of-aggregate").into(),
        ],
    )
    .await;
    let channel = channel(&plane);
    assert_eq!(ask_for(&channel, "eds").await?, "eds");
    assert_eq!(ask_for(&channel, "dns").await?, "dns");
    assert_eq!(ask_for(&channel, "aggregate").await?, "dns");
    plane.wait_subscriptions(CDS, &["aggregate", "dns", "eds"]).await?;
    plane.wait_subscriptions(EDS, &["service-of-eds"]).await?;
    Ok(())
}

#[tokio::test]
async fn a37_04_the_dns_name_is_host_and_port_of_the_one_endpoint() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane([logical_dns_cluster("root", "127.0.0.1", a.address().port()).into()]).await;
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    // A different port, then a different host that does not resolve.
    plane.set(logical_dns_cluster("root", "127.0.0.1", b.address().port()));
    until_only(&channel, &["b"]).await;
    plane.set(logical_dns_cluster("root", "no such host", b.address().port()));
    let status = until_failure(&channel, "no such host").await;
    assert_eq!(status.code(), Code::Unavailable);
    Ok(())
}

#[tokio::test]
async fn a37_13_a37_14_a_cluster_in_two_places_is_asked_for_once_and_updated_in_both() -> TestResult {
    let (old, new) = (Backend::start("old").await?, Backend::start("new").await?);
    let routes = [route_for("direct", "shared"), route("aggregate")];
    let plane = plane_with_routes(routes, [aggregate_cluster("aggregate", ["shared"]).into()]).await;
    plane.set_all(leaf("shared", &old));
    let channel = channel(&plane);
    for choice in ["direct", "aggregate"] {
        assert_eq!(ask_for(&channel, choice).await?, "old");
    }
    plane.set(priorities("shared", [[&new]]));
    plane.wait_ack(EDS).await?;
    for choice in ["direct", "aggregate"] {
        let moved = async { while ask_for(&channel, choice).await.ok().as_deref() != Some("new") {} };
        tokio::time::timeout(PATIENCE, moved).await.map_err(|_| choice)?;
    }
    // Both are one subscription: no request names it twice.
    assert_eq!(plane.subscriptions(EDS), ["shared".to_owned()].into());
    for request in plane.requests() {
        let names: BTreeSet<_> = request.names().iter().collect();
        assert_eq!(names.len(), request.names().len(), "{request:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a37_57_channels_of_the_process_share_a_limit() -> TestResult {
    let backend = Backend::start("a").await?;
    let clusters =
        || [eds_cluster("a37-57").max_requests(2).into(), priorities("a37-57", [[&backend]]).into()];
    // Two control planes, hence two xDS clients, and two channels of the first.
    let one = plane_with_routes([route("a37-57")], clusters()).await;
    let two = plane_with_routes([route("a37-57")], clusters()).await;
    let channels = [channel(&one), channel(&one), channel(&two)];
    for channel in &channels {
        assert_eq!(ask(channel).await?, "a");
    }
    backend.hang();
    let mut held = [hold(&channels[0], 1), hold(&channels[2], 1)];
    backend.wait_in_flight(2).await?;
    for channel in &channels {
        let status = ask(channel).await.unwrap_err();
        assert!(status.message().contains("max_requests 2 of cluster a37-57"), "{status:?}");
    }
    backend.resume();
    for call in &mut held {
        assert_eq!(call.next().await?, "a");
    }
    assert_eq!(ask(&channels[1]).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a37_20_a_cluster_that_never_came_fails_its_rpcs_when_the_server_is_lost() -> TestResult {
    let plane = plane([]).await;
    let channel = channel(&plane);
    let mut call = hold(&channel, 1);
    plane.wait_subscriptions(CDS, &["root"]).await?;
    plane.stop().await;
    let status = call.next().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("Cluster root: management server unreachable"), "{status:?}");
    assert_eq!(channel.state(), ChannelState::TransientFailure);
    Ok(())
}

#[tokio::test]
async fn a37_36_endpoints_that_never_came_fail_rpcs_when_the_server_is_lost() -> TestResult {
    let backend = Backend::start("next").await?;
    let routes = [route_for("alone", "eds"), route("aggregate")];
    let resources = [
        eds_cluster("eds").into(),
        aggregate_cluster("aggregate", ["eds", "dns"]).into(),
        dns_leaf("dns", &backend).into(),
    ];
    let plane = plane_with_routes(routes, resources).await;
    let channel = channel(&plane);
    let mut waits = hold(&channel, 1);
    plane.wait_subscriptions(EDS, &["eds"]).await?;
    // The client has all but the endpoints.
    plane.wait_subscriptions(CDS, &["aggregate", "dns", "eds"]).await?;
    plane.wait_ack(CDS).await?;
    plane.stop().await;
    // One priority without endpoints: the next leaf serves, and without one RPCs fail with the reason.
    assert_eq!(waits.next().await?, "next");
    let status = ask_for(&channel, "alone").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("management server unreachable"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a37_16_both_uses_of_a_cluster_count_against_one_circuit_breaker() -> TestResult {
    let backend = Backend::start("a").await?;
    let routes = [route_for("direct", "a37-16"), route("aggregate")];
    let resources = [
        aggregate_cluster("aggregate", ["a37-16"]).into(),
        eds_cluster("a37-16").max_requests(2).into(),
        priorities("a37-16", [[&backend]]).into(),
    ];
    let plane = plane_with_routes(routes, resources).await;
    let channel = channel(&plane);
    assert_eq!(ask_for(&channel, "direct").await?, "a");
    assert_eq!(ask_for(&channel, "aggregate").await?, "a");
    backend.hang();
    let held = ["direct", "aggregate"].map(|choice| {
        let channel = channel.clone();
        tokio::spawn(async move { ask_for(&channel, choice).await })
    });
    backend.wait_in_flight(2).await?;
    for choice in ["direct", "aggregate"] {
        let status = ask_for(&channel, choice).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("max_requests 2 of cluster a37-16"), "{status:?}");
    }
    backend.resume();
    for call in held {
        assert_eq!(call.await??, "a");
    }
    assert_eq!(ask_for(&channel, "direct").await?, "a");
    Ok(())
}

#[tokio::test]
async fn a37_28_a_dead_eds_leaf_asks_for_nothing_again() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_cluster("root", ["leaf"]).into()]).await;
    plane.set_all(leaf("leaf", &backend));
    let channel = channel(&plane);
    until_only(&channel, &["a"]).await;
    for type_url in [LDS, RDS, CDS, EDS] {
        plane.wait_ack(type_url).await?;
    }
    let before = plane.requests().len();
    backend.kill().await;
    for _ in 0..3 {
        until_failure(&channel, "refused").await;
        channel.reset_connect_backoff();
    }
    // Only this ACK follows.
    plane.set(priorities("leaf", [[&backend]]).drops("none", 0));
    plane.wait_ack(EDS).await?;
    assert_eq!(plane.requests().len(), before + 1);
    assert_eq!(plane.streams_opened(), 1);
    Ok(())
}

#[tokio::test]
async fn a37_40_the_next_leaf_serves_for_one_that_has_no_endpoints() -> TestResult {
    let backend = Backend::start("next").await?;
    let cases: [(&str, Vec<Resource>); 4] = [
        ("an EDS error", vec![eds_cluster("leaf").into(), Resource::garbage(EDS, "leaf")]),
        ("a DNS error", vec![logical_dns_cluster("leaf", "no such host", 80).into()]),
        ("an EDS resource that does not exist", vec![eds_cluster("leaf").into()]),
        ("no localities", vec![eds_cluster("leaf").into(), assignment("leaf", []).into()]),
    ];
    for (what, resources) in cases {
        let plane = plane([aggregate_cluster("root", ["leaf", "next"]).into()]).await;
        plane.set_all(leaf("next", &backend));
        plane.set_all(resources);
        let channel = builder(&plane).resource_timeout(Duration::from_millis(300)).build()?;
        assert_eq!(ask(&channel).await.map_err(|status| format!("{what}: {status}"))?, "next");
        // Once it has endpoints, the leaf has its old position.
        let first = Backend::start("first").await?;
        plane.set_all(leaf("leaf", &first));
        until_only(&channel, &["first"]).await;
    }
    Ok(())
}

#[tokio::test]
async fn a37_41_the_circuit_breaker_lets_exactly_the_limit_pass() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_cluster("root", ["a37-41"]).into()]).await;
    plane.set_all([eds_cluster("a37-41").max_requests(3).into(), priorities("a37-41", [[&backend]]).into()]);
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    backend.hang();
    let mut calls = hold(&channel, 8);
    for _ in 0..5 {
        let status = calls.next().await.unwrap_err();
        assert!(status.message().contains("max_requests 3 of cluster a37-41"), "{status:?}");
    }
    backend.wait_in_flight(3).await?;
    backend.resume();
    for _ in 0..3 {
        assert_eq!(calls.next().await?, "a");
    }
    assert_eq!(backend.count(), 4, "what is over the limit reaches nobody");
    // A new limit applies at once.
    plane.set(eds_cluster("a37-41").max_requests(0));
    until_failure(&channel, "max_requests 0").await;
    Ok(())
}

#[tokio::test]
async fn a37_42_rpcs_are_dropped_by_category_before_any_backend() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_cluster("root", ["leaf"]).into()]).await;
    plane.set_all(leaf("leaf", &backend));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    plane.set(priorities("leaf", [[&backend]]).drops("throttle", 0).drops("overload", 1_000_000));
    let status = until_failure(&channel, "overload").await;
    assert_eq!(status.code(), Code::Unavailable);
    let before = backend.count();
    for _ in 0..20 {
        ask(&channel).await.unwrap_err();
    }
    assert_eq!(backend.count(), before);
    plane.set(priorities("leaf", [[&backend]]));
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test]
async fn a37_45_a37_54_each_leaf_has_its_own_limit_under_its_own_name() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let root = aggregate_cluster("root", ["a37-45-near", "a37-45-far"]).max_requests(0);
    let plane = plane([
        root.into(),
        eds_cluster("a37-45-near").max_requests(1).into(),
        eds_cluster("a37-45-far").max_requests(2).into(),
        priorities("a37-45-near", [[&near]]).into(),
        priorities("a37-45-far", [[&far]]).into(),
    ])
    .await;
    let channel = channel(&plane);
    until_only(&channel, &["near"]).await;
    near.hang();
    let mut at_near = hold(&channel, 1);
    near.wait_in_flight(1).await?;
    let status = ask(&channel).await.unwrap_err();
    assert!(status.message().contains("max_requests 1 of cluster a37-45-near"), "{status:?}");

    // Exceeding the limit does not cause failover.
    assert_eq!(far.count(), 0);
    // RPCs in flight to one leaf do not count for the other.
    plane.set(aggregate_cluster("root", ["a37-45-far", "a37-45-near"]).max_requests(0));
    until_only(&channel, &["far"]).await;
    far.hang();
    let _at_far = hold(&channel, 2);
    far.wait_in_flight(2).await?;
    let status = ask(&channel).await.unwrap_err();
    assert!(status.message().contains("max_requests 2 of cluster a37-45-far"), "{status:?}");
    near.resume();
    assert_eq!(at_near.next().await?, "near");
    Ok(())
}

#[tokio::test]
async fn a37_46_each_eds_leaf_has_its_own_drops() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = plane([
        aggregate_cluster("root", ["near", "far"]).into(),
        eds_cluster("near").into(),
        eds_cluster("far").into(),
        priorities("near", [[&near]]).into(),
        priorities("far", [[&far]]).drops("of-far", 1_000_000).into(),
    ])
    .await;
    let channel = channel(&plane);
    assert_eq!(spread(&channel, 50).await, [("near".to_owned(), 50)].into());
    near.kill().await;
    until_failure(&channel, "of-far").await;
    plane.set(priorities("far", [[&far]]));
    until_only(&channel, &["far"]).await;
    Ok(())
}

#[tokio::test]
async fn a37_47_nothing_is_dropped_for_a_dns_leaf() -> TestResult {
    let backend = Backend::start("a").await?;
    let mut dns = dns_leaf("dns", &backend);
    dns.load_assignment = dns.load_assignment.map(|endpoints| endpoints.drops("everything", 1_000_000));
    let plane = plane([aggregate_cluster("root", ["dns"]).into(), dns.into()]).await;
    assert_eq!(spread(&channel(&plane), 20).await, [("a".to_owned(), 20)].into());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_50_the_limit_is_1024_unless_told() -> TestResult {
    // Enough backends that no connection runs out of streams.
    let mut backends = Vec::new();
    for n in 0..8 {
        backends.push(Backend::start(&n.to_string()).await?);
    }
    let names: Vec<_> = backends.iter().map(Backend::name).collect();
    let plane = plane([eds_cluster("root").eds_service_name("a37-50").into()]).await;
    plane.set(priorities("a37-50", [&backends]));
    let channel = channel(&plane);
    until_only(&channel, &names).await;
    backends.iter().for_each(Backend::hang);
    let _held = hold(&channel, 1024);
    // Calls that start at the same time may be distributed unevenly, so only the sum is certain.
    let all = async {
        while backends.iter().map(Backend::in_flight).sum::<usize>() < 1024 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await?;
    let status = ask(&channel).await.unwrap_err();
    assert!(status.message().contains("max_requests 1024 of cluster root"), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a37_64_an_eds_leaf_is_validated_like_any_eds_cluster() -> TestResult {
    let backend = Backend::start("next").await?;
    let plane = plane([aggregate_cluster("root", ["leaf", "next"]).into()]).await;
    plane.set_all(leaf("next", &backend));
    let mut bad = eds_cluster("leaf");
    bad.eds_cluster_config = None;
    plane.set(bad);
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "next", "a leaf without data is skipped");
    let nack = plane.wait_nack(CDS).await?;
    let why = &nack.error().ok_or("no error")?.message;
    assert!(why.contains("leaf") && why.contains("eds_cluster_config"), "{why}");
    assert_eq!(plane.subscriptions(EDS), ["next".to_owned()].into());
    Ok(())
}

#[tokio::test]
async fn a75_04_limits_and_drops_are_above_the_priorities_of_a_leaf() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = plane([
        aggregate_cluster("root", ["a75-04"]).into(),
        eds_cluster("a75-04").max_requests(1).into(),
        assignment("a75-04", [locality("near", [&near]), locality("far", [&far]).priority(1)]).into(),
    ])
    .await;
    let channel = channel(&plane);
    until_only(&channel, &["near"]).await;
    near.hang();
    let mut at_near = hold(&channel, 1);
    near.wait_in_flight(1).await?;
    // The other priority takes over, but the RPC in flight still counts.
    plane.set(assignment("a75-04", [locality("near", [&near]).priority(1), locality("far", [&far])]));
    far.wait_connections(1).await?;
    let status = ask(&channel).await.unwrap_err();
    assert!(status.message().contains("max_requests 1 of cluster a75-04"), "{status:?}");
    near.resume();
    assert_eq!(at_near.next().await?, "near");
    until_only(&channel, &["far"]).await;
    // Drops need no priority at all.
    plane.set(assignment("a75-04", []).drops("everything", 1_000_000));
    until_failure(&channel, "everything").await;
    Ok(())
}

#[tokio::test]
async fn a75_12_an_aggregate_may_have_any_policy() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_cluster("root", ["leaf"]).into()]).await;
    plane.set_all(leaf("leaf", &backend));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a", "ROUND_ROBIN, as it is unset");
    // MAGLEV, CLUSTER_PROVIDED, and a value that no version of Envoy has.
    for policy in [5, 6, 99] {
        let mut root = aggregate_cluster("root", ["leaf"]);
        root.lb_policy = policy;
        plane.set(root);
        plane.wait_ack(CDS).await.map_err(|error| format!("policy {policy}: {error}"))?;
        assert_eq!(ask(&channel).await?, "a", "policy {policy}");
    }
    Ok(())
}

#[tokio::test]
async fn a75_17_nested_aggregates_have_one_layer_of_failover_timers() -> TestResult {
    let silent = BlackHole::start().await?;
    let (second, third) = (Backend::start("second").await?, Backend::start("third").await?);
    let plane = plane([
        aggregate_cluster("root", ["inner", "leaf-3"]).into(),
        aggregate_cluster("inner", ["leaf-1", "leaf-2"]).into(),
    ])
    .await;
    plane.set_all(leaf("leaf-1", &silent));
    plane.set_all(leaf("leaf-2", &second));
    plane.set_all(leaf("leaf-3", &third));
    let channel = builder(&plane).failover_timeout(Duration::from_millis(300)).build()?;
    // With a second timer around the inner aggregate, both would fire together.
    assert_eq!(ask(&channel).await?, "second");
    assert!(silent.connections() > 0, "the first leaf was tried");
    until_only(&channel, &["second"]).await;
    assert_eq!(third.connections_accepted(), 0);
    Ok(())
}
