//! Aggregate clusters whose list of leaves is a separate resource (gRFC A99), over real sockets.

mod common;

use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::route::v3::Route;
use proxyless::{Gates, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{AGGREGATE, Backend, CDS, ControlPlane, Resource};
use tonic::Code;

/// A control plane whose cluster `root` has its leaves in the resource `list`.
async fn plane(resources: impl IntoIterator<Item = Resource>) -> ControlPlane {
    plane_with_routes([route("root")], resources).await
}

async fn plane_with_routes(
    routes: impl IntoIterator<Item = Route>,
    resources: impl IntoIterator<Item = Resource>,
) -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    let routes = route_config("route", [virtual_host(["*"], routes)]);
    let fixed =
        [listener(SERVICE, "route").into(), routes.into(), aggregate_resource_cluster("root", "list").into()];
    plane.set_all(fixed.into_iter().chain(resources));
    plane
}

fn leaf(name: &str, backend: &Backend) -> [Resource; 2] {
    [eds_cluster(name).into(), priorities(name, [[backend]]).into()]
}

fn open() -> Gates {
    let mut gates = Gates::default();
    gates.aggregate_cluster_resource = true;
    gates
}

/// A channel with the feature enabled.
fn gated(plane: &ControlPlane) -> XdsChannel {
    builder(plane).gates(open()).build().unwrap()
}

/// The same, for tests of resources that never arrive.
fn impatient(plane: &ControlPlane) -> XdsChannel {
    builder(plane).gates(open()).resource_timeout(Duration::from_millis(300)).build().unwrap()
}

fn requests_of(plane: &ControlPlane, type_url: &str) -> usize {
    plane.requests().iter().filter(|request| request.type_url() == type_url).count()
}

#[tokio::test]
async fn a99_01_a99_02_the_list_may_be_a_resource_or_inline() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane_with_routes(
        [route_for("inline", "inline"), route("root")],
        [aggregate_cluster("inline", ["b", "a"]).into(), aggregate_resource("list", ["a", "b"])],
    )
    .await;
    plane.set_all(leaf("a", &a).into_iter().chain(leaf("b", &b)));
    let channel = gated(&plane);
    assert_eq!(ask_for(&channel, "inline").await?, "b");
    assert_eq!(ask(&channel).await?, "a");
    a.kill().await;
    until_only(&channel, &["b"]).await;
    Ok(())
}

#[tokio::test]
async fn a99_04_the_list_has_its_own_subscription_acks_and_versions() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane([aggregate_resource("list", ["a", "b"])]).await;
    plane.set_all(leaf("a", &a).into_iter().chain(leaf("b", &b)));
    let channel = gated(&plane);
    assert_eq!(ask(&channel).await?, "a");
    plane.wait_subscriptions(AGGREGATE, &["list"]).await?;
    assert_eq!(plane.wait_ack(AGGREGATE).await?.version(), "1");
    plane.wait_ack(CDS).await?;

    let of_clusters = requests_of(&plane, CDS);
    for version in 2..=4 {
        let order = if version % 2 == 0 { ["b", "a"] } else { ["a", "b"] };
        plane.set(aggregate_resource("list", order));
        let ack = plane.wait_ack(AGGREGATE).await?;
        assert_eq!((ack.version(), ack.names()), (&*version.to_string(), &["list".to_owned()][..]));
        until_only(&channel, &order[..1]).await;
    }
    assert_eq!(requests_of(&plane, CDS), of_clusters, "the clusters have nothing to do with it");
    assert_eq!(plane.streams_opened(), 1);
    Ok(())
}

#[tokio::test]
async fn a99_04_the_list_has_its_own_timer() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane(leaf("a", &backend)).await;
    let channel = impatient(&plane);
    let status = ask(&channel).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("list") && status.message().contains("does not exist"), "{status:?}");
    // A99-22: a late list is used.
    plane.set(aggregate_resource("list", ["a"]));
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test]
async fn a99_06_a_bad_list_is_rejected_as_a_list_and_not_as_a_cluster() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_resource("list", ["a"])]).await;
    plane.set_all(leaf("a", &backend));
    let channel = gated(&plane);
    assert_eq!(ask(&channel).await?, "a");
    for (bad, part) in
        [(aggregate_resource("list", []), "clusters"), (Resource::garbage(AGGREGATE, "list"), "decode")]
    {
        plane.set(bad);
        let nack = plane.wait_nack(AGGREGATE).await?;
        let why = &nack.error().ok_or("no error")?.message;
        assert!(why.contains(part), "{part} is not in {why:?}");
        assert_eq!(nack.version(), "1", "the version of the last good one");
        assert_eq!(ask(&channel).await?, "a", "the last good list stays in use");
    }
    plane.wait_ack(CDS).await?;
    let requests = plane.requests();
    assert!(!requests.iter().any(|request| request.type_url() == CDS && request.is_nack()), "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn a99_10_lists_nest_with_duplicates_and_missing_children_as_inline_ones_do() -> TestResult {
    let (a, b, c) = (Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?);
    let plane = plane([
        aggregate_resource("list", ["nested", "b", "missing", "c"]),
        aggregate_resource_cluster("nested", "inner-list").into(),
        aggregate_resource("inner-list", ["inline", "b"]),
        aggregate_cluster("inline", ["missing", "a"]).into(),
    ])
    .await;
    for (name, backend) in [("a", &a), ("b", &b), ("c", &c)] {
        plane.set_all(leaf(name, backend));
    }
    let channel = impatient(&plane);
    // Depth first: a, b, c. Each is left when it dies, and none is visited twice.
    until_only(&channel, &["a"]).await;
    plane.wait_subscriptions(AGGREGATE, &["inner-list", "list"]).await?;
    a.kill().await;
    until_only(&channel, &["b"]).await;
    b.kill().await;
    until_only(&channel, &["c"]).await;
    c.kill().await;
    until_failure(&channel, "missing").await;
    Ok(())
}

#[tokio::test]
async fn a99_10_lists_nest_as_deep_as_inline_ones() -> TestResult {
    let backend = Backend::start("a").await?;
    // `root` is the first aggregate, so this makes one more than `below`.
    let chain = |below: usize| {
        let name = |n: usize| if n == below { "leaf".to_owned() } else { format!("aggregate-{n}") };
        let mut resources = vec![aggregate_resource("list", [&*name(0)])];
        for n in 0..below {
            let list = format!("list-{n}");
            resources.push(aggregate_resource_cluster(&name(n), &list).into());
            resources.push(aggregate_resource(&list, [&*name(n + 1)]));
        }
        resources
    };
    let plane = plane(chain(14)).await;
    plane.set_all(leaf("leaf", &backend));
    let channel = gated(&plane);
    assert_eq!(ask(&channel).await?, "a", "A37-17: 15 above the leaf");
    plane.set_all(chain(15));
    let status = until_failure(&channel, "levels of clusters").await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(!plane.requests().iter().any(|request| request.is_nack()), "A37-18: the resources are good");
    plane.set_all(chain(14));
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a99_11_inline_or_not_makes_no_difference_below() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane([aggregate_resource("list", ["a", "b"])]).await;
    plane.set_all(leaf("a", &a).into_iter().chain(leaf("b", &b)));
    let channel = gated(&plane);
    until_only(&channel, &["a"]).await;

    let load = Load::start(&channel, 4);
    for _ in 0..5 {
        plane.set(aggregate_cluster("root", ["a", "b"]));
        plane.wait_subscriptions(AGGREGATE, &[]).await?;
        plane.set(aggregate_resource_cluster("root", "list"));
        plane.wait_subscriptions(AGGREGATE, &["list"]).await?;
        plane.wait_ack(AGGREGATE).await?;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    assert_eq!((a.connections_accepted(), b.connections_accepted()), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a99_13_only_the_gate_makes_a_list_a_resource() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = plane([aggregate_resource("list", ["a"])]).await;
    plane.set_all(leaf("a", &backend));
    let closed = builder(&plane).gates(Gates::default()).build()?;
    let status = ask(&closed).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let nack = plane.wait_nack(CDS).await?;
    let why = &nack.error().ok_or("no error")?.message;
    assert!(why.contains("AggregateClusterResource"), "{why}");
    assert_eq!(requests_of(&plane, AGGREGATE), 0, "never asked for");
    drop(closed);
    plane.wait_open_streams(0).await?;

    assert_eq!(ask(&gated(&plane)).await?, "a");
    Ok(())
}

#[tokio::test]
async fn a99_24_absence_from_a_response_is_not_deletion() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let routes = [route_for("other", "other"), route("root")];
    let resources = [
        aggregate_resource("list", ["a", "b"]),
        aggregate_resource_cluster("other", "other-list").into(),
        aggregate_resource("other-list", ["b"]),
    ];
    let plane = plane_with_routes(routes, resources).await;
    plane.set_all(leaf("a", &a).into_iter().chain(leaf("b", &b)));
    let channel = gated(&plane);
    assert_eq!((ask(&channel).await?, ask_for(&channel, "other").await?), ("a".into(), "b".into()));

    // An empty response, and one with the other list only.
    let other = aggregate_resource("other-list", ["b", "a"]);
    for resources in [vec![], vec![other.value().clone()]] {
        let nonces = plane.send(AGGREGATE, &resources);
        let answered = |request: &proxyless_testkit::Request| nonces.iter().any(|n| n == request.nonce());
        let answer = plane.wait_for_request(answered).await?;
        assert!(!answer.is_nack(), "{answer:?}");
        assert_eq!(spread(&channel, 10).await, [("a".to_owned(), 10)].into());
    }
    // Nor is it forgotten: its second leaf is still in use.
    plane.remove(AGGREGATE, "list");
    a.kill().await;
    until_only(&channel, &["b"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a99_12_reordering_under_load_fails_no_rpc() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = plane([aggregate_resource("list", ["a", "b"])]).await;
    plane.set_all(leaf("a", &a).into_iter().chain(leaf("b", &b)));
    let channel = gated(&plane);
    until_only(&channel, &["a"]).await;

    let load = Load::start(&channel, 4);
    for order in [["b", "a"], ["a", "b"]].into_iter().cycle().take(10) {
        plane.set(aggregate_resource("list", order));
        until_only(&channel, &order[..1]).await;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    assert_eq!((a.connections_accepted(), b.connections_accepted()), (1, 1), "connected once each");
    Ok(())
}
