//! Several management servers over real sockets: authorities (gRFC A47) and fallback (gRFC A71).

mod common;

use common::*;
use proxyless::{Bootstrap, BuildError, ClientPool, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane, LDS};
use serde_json::{Value, json};
use tonic::Status;

fn servers(planes: &[&ControlPlane]) -> Value {
    let server = |plane: &&ControlPlane| json!({"server_uri": plane.address().to_string(), "channel_creds": [{"type": "insecure"}]});
    planes.iter().map(server).collect()
}

fn bootstrap_of(planes: &[&ControlPlane], fields: Value) -> Bootstrap {
    let mut json = json!({"xds_servers": servers(planes), "node": {"id": "n"}});
    for (field, value) in fields.as_object().unwrap() {
        json[field] = value.clone();
    }
    Bootstrap::from_json(&json.to_string()).unwrap()
}

fn build(target: &str, bootstrap: Bootstrap) -> XdsChannel {
    XdsChannel::builder(target).bootstrap(bootstrap).client_pool(ClientPool::new()).build().unwrap()
}

fn name(kind: &str, id: &str) -> String {
    format!("xdstp://a.example/envoy.config.{kind}/{id}")
}

/// Sends RPCs until this backend answers; none fails meanwhile.
async fn until_from(channel: &XdsChannel, backend: &str) -> Result<(), Status> {
    let arrived = async {
        while ask(channel).await? != backend {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, arrived).await.expect("the backend answers")
}

#[tokio::test]
async fn a47_01_16_target_with_an_authority_uses_its_servers_alone() -> TestResult {
    let backend = Backend::start("a").await?;
    let (top, own) = (ControlPlane::start().await?, ControlPlane::start().await?);
    let (listener_name, cluster) = (name("listener.v3.Listener", "svc/1"), name("cluster.v3.Cluster", "c"));
    let endpoints = name("endpoint.v3.ClusterLoadAssignment", "e?k=v");
    own.set_all([
        listener(&listener_name, "route").into(),
        eds_cluster(&cluster).eds_service_name(&endpoints).into(),
        priorities(&endpoints, [vec![&backend]]).into(),
    ]);
    // A plain name belongs to the top-level servers, wherever it is mentioned.
    top.set(simple_route_config("route", &cluster));
    let authorities = json!({"authorities": {"a.example": {"xds_servers": servers(&[&own])}}});
    let channel = build("xds://a.example/svc/1", bootstrap_of(&[&top], authorities));
    assert_eq!(ask(&channel).await?, "a");
    assert!(top.subscriptions(CDS).is_empty() && top.subscriptions(LDS).is_empty());
    assert_eq!(own.subscriptions(LDS), [listener_name].into());
    Ok(())
}

#[tokio::test]
async fn a47_15_target_with_an_unknown_authority_is_not_built() -> TestResult {
    let plane = ControlPlane::start().await?;
    let bootstrap = bootstrap_of(&[&plane], json!({"authorities": {"a": {}}}));
    let error = XdsChannel::builder("xds://b/svc").bootstrap(bootstrap).build().unwrap_err();
    assert!(matches!(error, BuildError::Target(_)) && error.to_string().contains("\"b\""), "{error}");
    Ok(())
}

#[tokio::test]
async fn a47_22_cluster_of_an_unknown_authority_fails_only_its_route() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let unknown = "xdstp://nobody/envoy.config.cluster.v3.Cluster/c";
    let routes = [route_for("unknown", unknown), route("cluster")];
    plane.set(route_config("route", [virtual_host(["*"], routes)]));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "a");
    let error = ask_for(&channel, "unknown").await.unwrap_err();
    assert!(error.message().contains("authority \"nobody\" is not among"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a71_10_13_14_fallback_serves_until_the_first_server_answers() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let (first, second) = (mesh(&[&a]).await, mesh(&[&b]).await);
    first.stop().await;
    let bootstrap = bootstrap_of(&[&first, &second], json!({}));
    let channel = build(&format!("xds:///{SERVICE}"), bootstrap);
    assert_eq!(ask(&channel).await?, "b");
    first.restart().await?;
    until_from(&channel, "a").await?;
    second.wait_open_streams(0).await?;
    second.wait_connections(0).await?;
    // A71-09: everything is cached, so the next outage changes nothing.
    first.stop().await;
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!(second.streams_opened(), 1);
    Ok(())
}

#[tokio::test]
async fn a71_12_error_names_every_server() -> TestResult {
    let (first, second) = (mesh(&[]).await, mesh(&[]).await);
    first.stop().await;
    second.stop().await;
    let channel = build(&format!("xds:///{SERVICE}"), bootstrap_of(&[&first, &second], json!({})));
    let error = ask(&channel).await.unwrap_err();
    for plane in [&first, &second] {
        assert!(error.message().contains(&plane.address().to_string()), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a71_01_targets_have_their_own_clients_where_there_is_a_fallback() -> TestResult {
    let backend = Backend::start("a").await?;
    let (first, second) = (mesh(&[&backend]).await, mesh(&[]).await);
    first.set(listener("other.example", "route"));
    let pool = ClientPool::new();
    let build = |target: &str, planes: &[&ControlPlane]| {
        let builder = XdsChannel::builder(target).client_pool(pool.clone());
        builder.bootstrap(bootstrap_of(planes, json!({}))).build().unwrap()
    };
    let targets = [&format!("xds:///{SERVICE}"), "xds:///other.example"];
    let own = targets.map(|target| build(target, &[&first, &second]));
    for channel in &own {
        ask(channel).await?;
    }
    assert_eq!(first.streams_opened(), 2);
    let shared = targets.map(|target| build(target, &[&first]));
    for channel in &shared {
        ask(channel).await?;
    }
    assert_eq!(first.streams_opened(), 3);
    let scopes: Vec<_> = pool.clients().await.into_iter().map(|client| client.scope.unwrap()).collect();
    assert_eq!(scopes.iter().map(|scope| &**scope).collect::<Vec<_>>(), [targets, targets].concat());
    Ok(())
}

#[tokio::test]
async fn a47_25_load_is_reported_to_the_server_in_use() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let (first, second) = (mesh(&[&a]).await, mesh(&[&b]).await);
    for plane in [&first, &second] {
        plane.set(eds_cluster("cluster").report_load());
    }
    first.stop().await;
    let channel = build(&format!("xds:///{SERVICE}"), bootstrap_of(&[&first, &second], json!({})));
    assert_eq!(ask(&channel).await?, "b");
    second.wait_load("cluster", |load| load.succeeded == 1).await?;
    first.restart().await?;
    until_from(&channel, "a").await?;
    first.wait_load("cluster", |load| load.succeeded >= 1).await?;
    second.wait_open_load_streams(0).await?;
    // A71-14: neither of its streams is left, so the connection is closed.
    second.wait_connections(0).await?;
    assert_eq!(first.connections(), 1, "its two streams share one");
    Ok(())
}
