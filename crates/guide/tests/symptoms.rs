//! The symptoms of `docs/guide/src/debugging.md` are real: each is provoked, has the code that the page names, and its
//! text is on the page.

use std::time::Duration;

use proxyless::{Bootstrap, ClientPool, XdsChannel, XdsChannelBuilder};
use proxyless_guide::blocks::pages;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
use proxyless_testkit::{Backend, BlackHole, CDS, ControlPlane, LDS, dead_address};
use tonic::{Code, Request, Status};

/// A limit that tests do not reach.
const PATIENCE: Duration = Duration::from_secs(20);
/// The deadline of RPCs that reach it, and the time after which resources are missing.
const SHORT: Duration = Duration::from_millis(300);

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A control plane with a service `shop` at this endpoint.
async fn mesh(endpoint: impl IntoEndpoint) -> std::io::Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener("shop", "shop-routes").into(),
        simple_route_config("shop-routes", "shop-cluster").into(),
        eds_cluster("shop-cluster").into(),
        assignment("shop-cluster", [locality("zone", [endpoint])]).into(),
    ]);
    Ok(plane)
}

fn builder(plane: &ControlPlane) -> XdsChannelBuilder {
    let bootstrap = Bootstrap::from_json(&plane.bootstrap_json()).unwrap();
    XdsChannel::builder("xds:///shop").bootstrap(bootstrap).client_pool(ClientPool::new())
}

fn channel(plane: &ControlPlane) -> XdsChannel {
    builder(plane).resource_timeout(SHORT).build().unwrap()
}

async fn call_within(channel: &XdsChannel, timeout: Duration) -> Result<String, Status> {
    let mut request = Request::new(EchoRequest::new("tea"));
    request.set_timeout(timeout);
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

/// The error of RPCs, after those that succeed at first.
async fn failure(channel: &XdsChannel) -> Status {
    loop {
        match call_within(channel, PATIENCE).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(status) => return status,
        }
    }
}

/// The status has this code and text, and the page quotes the text.
fn documented(status: &Status, code: Code, symptom: &str) {
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(symptom), "{:?} is not in: {}", symptom, status.message());
    on_the_page(symptom);
}

fn on_the_page(symptom: &str) {
    let page = pages().unwrap().into_iter().find(|page| page.path == "debugging.md").unwrap();
    assert!(page.text.contains(symptom), "docs/guide/src/debugging.md does not have {symptom:?}");
}

#[tokio::test]
async fn a_missing_listener() -> TestResult {
    let plane = ControlPlane::start().await?;
    let status = failure(&channel(&plane)).await;
    documented(&status, Code::Unavailable, "does not exist: requested");
    assert!(status.message().contains("Listener shop"), "{status}");
    Ok(())
}

#[tokio::test]
async fn an_unreachable_control_plane() -> TestResult {
    let dead = dead_address()?;
    let bootstrap = Bootstrap::builder().server(dead.address().to_string()).build()?;
    let channel = XdsChannel::builder("xds:///shop").bootstrap(bootstrap).client_pool(ClientPool::new());
    documented(&failure(&channel.build()?).await, Code::Unavailable, "management server unreachable");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_not_a_control_plane() -> TestResult {
    let backend = Backend::start("backend").await?;
    let bootstrap = Bootstrap::builder().server(backend.address().to_string()).build()?;
    let channel = XdsChannel::builder("xds:///shop").bootstrap(bootstrap).client_pool(ClientPool::new());
    documented(
        &failure(&channel.build()?).await,
        Code::Unavailable,
        "the management server has no ADS service",
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_cluster() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    plane.set(simple_route_config("shop-routes", "typo"));
    let status = failure(&channel(&plane)).await;
    documented(&status, Code::Unavailable, "does not exist: requested");
    assert!(status.message().contains("Cluster typo"), "{status}");
    Ok(())
}

#[tokio::test]
async fn a_rejected_resource() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    let mut cluster = eds_cluster("shop-cluster");
    cluster.eds_cluster_config = None;
    plane.set(cluster);
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "rejected version");
    Ok(())
}

#[tokio::test]
async fn no_virtual_host() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    plane.set(route_config("shop-routes", [virtual_host(["other.example"], [route("shop-cluster")])]));
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "no virtual host for");
    Ok(())
}

#[tokio::test]
async fn no_route() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    plane.set(route_config("shop-routes", [virtual_host(["*"], [route("shop-cluster").prefix("/other/")])]));
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "no route of virtual host");
    Ok(())
}

#[tokio::test]
async fn no_endpoints() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    plane.set(assignment("shop-cluster", []));
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "it has no localities");
    Ok(())
}

#[tokio::test]
async fn refused_connections() -> TestResult {
    let dead = dead_address()?;
    let plane = mesh(dead.address()).await?;
    let status = failure(&channel(&plane)).await;
    documented(&status, Code::Unavailable, "connections to all backends failing; last error");
    assert!(status.message().contains(&dead.address().to_string()), "{status}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_identity() -> TestResult {
    let (ca, folder) = (Authority::new("CA"), CertificateFolder::new()?);
    folder.write_ca(&[&ca])?;
    folder.write_identity(&ca.issue(Leaf::new("client")))?;
    let tls = ServerTls::new(&ca.issue(Leaf::new("server").dns("other.example")));
    let backend = Backend::start("a").await?.with_tls(&tls);
    let plane = mesh(backend.address()).await?;
    plane.set(eds_cluster("shop-cluster").tls(upstream_tls("certs").server_name("shop.example")));
    let bootstrap = Bootstrap::from_json(&plane.bootstrap_json_with("certs", &folder))?;
    let channel =
        XdsChannel::builder("xds:///shop").bootstrap(bootstrap).client_pool(ClientPool::new()).build()?;
    let status = failure(&channel).await;
    documented(&status, Code::Unavailable, "presented");
    assert!(status.message().contains("other.example"), "{status}");
    Ok(())
}

#[tokio::test]
async fn plaintext_to_a_tls_server() -> TestResult {
    let tls = ServerTls::new(&Authority::new("CA").issue(Leaf::new("server").dns("shop.example")));
    let backend = Backend::start("a").await?.with_tls(&tls);
    let plane = mesh(backend.address()).await?;
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "TLS");
    Ok(())
}

#[tokio::test]
async fn a_drop() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(backend.address()).await?;
    let localities = [locality("zone", [backend.address()])];
    plane.set(assignment("shop-cluster", localities).drops("overload", 1_000_000));
    documented(&failure(&channel(&plane)).await, Code::Unavailable, "drop: category");
    Ok(())
}

#[tokio::test]
async fn the_circuit_breaker() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(backend.address()).await?;
    // A name of its own: RPCs are counted per cluster name in a process (A32), and the other tests run beside this one.
    plane.set_all([
        simple_route_config("shop-routes", "breaking").into(),
        eds_cluster("breaking").max_requests(1).into(),
        assignment("breaking", [locality("zone", [backend.address()])]).into(),
    ]);
    let channel = channel(&plane);
    assert_eq!(call_within(&channel, PATIENCE).await?, "a");
    backend.hang();
    let held = tokio::spawn({
        let channel = channel.clone();
        async move { call_within(&channel, PATIENCE).await }
    });
    backend.wait_in_flight(1).await?;
    documented(&failure(&channel).await, Code::Unavailable, "circuit breaker: max_requests");
    held.abort();
    Ok(())
}

#[tokio::test]
async fn ejected_endpoints() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(backend.address()).await?;
    let detection = outlier_detection(Duration::from_millis(100), PATIENCE).failure_percentage(10, 1, 1);
    plane.set(eds_cluster("shop-cluster").outlier_detection(detection));
    backend.fail_with(Code::Internal);
    let channel = channel(&plane);
    let status = loop {
        let status = failure(&channel).await;
        if status.code() == Code::Unavailable {
            break status;
        }
    };
    documented(&status, Code::Unavailable, "ejected by outlier detection");
    Ok(())
}

#[tokio::test]
async fn deadlines_say_what_they_waited_for() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(backend.address()).await?;
    backend.hang();
    let status = call_within(&channel(&plane), SHORT).await.unwrap_err();
    documented(&status, Code::DeadlineExceeded, "waiting for the response from");

    let hole = BlackHole::start().await?;
    let plane = mesh(hole.address()).await?;
    let status = call_within(&channel(&plane), SHORT).await.unwrap_err();
    documented(&status, Code::DeadlineExceeded, "waiting for a connection");

    let plane = mesh(backend.address()).await?;
    plane.withhold(LDS);
    let status = call_within(&builder(&plane).build()?, SHORT).await.unwrap_err();
    documented(&status, Code::DeadlineExceeded, "waiting for a route");
    Ok(())
}

#[test]
fn no_bootstrap() {
    // The tests of CI set neither variable.
    if std::env::var_os("GRPC_XDS_BOOTSTRAP").is_none()
        && std::env::var_os("GRPC_XDS_BOOTSTRAP_CONFIG").is_none()
    {
        let error = Bootstrap::from_env().unwrap_err().to_string();
        assert!(error.contains("none given: set GRPC_XDS_BOOTSTRAP"), "{error}");
        on_the_page("none given: set GRPC_XDS_BOOTSTRAP");
    }
}

#[tokio::test]
async fn a_nack_has_every_violation() -> TestResult {
    let plane = mesh(Backend::start("a").await?.address()).await?;
    plane.corrupt(CDS, "shop-cluster");
    let channel = channel(&plane);
    let call = tokio::spawn(async move { failure(&channel).await });
    let nack = plane.wait_nack(CDS).await?;
    assert!(nack.error().is_some_and(|error| !error.message.is_empty()));
    call.abort();
    Ok(())
}
