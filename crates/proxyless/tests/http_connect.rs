//! Connections to endpoints through HTTP CONNECT proxies, over sockets (gRFC A86).

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use proxyless::bootstrap::{CertificateFiles, RootsFile};
use proxyless::connect::{Address, Connecting, Connector, TcpConnector};
use proxyless::{Bootstrap, ClientPool, Gates, XdsChannel, XdsChannelBuilder, XdsCredentials};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
use proxyless_testkit::{Backend, CDS, ControlPlane, EDS, Proxy, dead_address};
use tonic::{Code, Status};

fn gate() -> Gates {
    Gates::from_variables(|name| name.contains("HTTP_CONNECT").then(|| "true".to_owned()))
}

fn proxied_cluster() -> Cluster {
    eds_cluster("cluster").http_connect()
}

/// A builder of a channel with the gate open.
fn proxied(plane: &ControlPlane) -> XdsChannelBuilder {
    builder(plane).gates(gate())
}

/// A mesh whose only endpoint is this backend, through this proxy.
async fn mesh_through(backend: &Backend, proxy: SocketAddr) -> ControlPlane {
    let plane = mesh(&[]).await;
    plane.set_all([
        proxied_cluster().into(),
        priorities("cluster", [[endpoint(backend).proxy(proxy)]]).into(),
    ]);
    plane
}

/// The failure of an RPC, which must name the proxy and the endpoint, and contain this.
#[track_caller]
fn assert_names(status: &Status, proxy: SocketAddr, endpoint: SocketAddr, parts: &[&str]) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    for part in [&proxy.to_string(), &endpoint.to_string()] {
        assert!(status.message().contains(part), "{part} is missing in {status}");
    }
    for part in parts {
        assert!(status.message().contains(part), "{part} is missing in {status}");
    }
}

#[tokio::test]
async fn a86_07_a86_13_a86_14_rpcs_go_through_the_proxy_of_the_endpoint_or_its_locality() -> TestResult {
    let (own, common) = (Proxy::start().await?, Proxy::start().await?);
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[]).await;
    let endpoints = [endpoint(&a).proxy(own.address()), endpoint(&b)];
    plane.set_all([
        proxied_cluster().into(),
        assignment("cluster", [locality("zone", endpoints).proxy(common.address())]).into(),
    ]);
    // Without xDS credentials.
    let channel = proxied(&plane).build()?;
    until_only(&channel, &["a", "b"]).await;
    assert_eq!(own.requests(), [a.address().to_string()]);
    assert_eq!(common.requests(), [b.address().to_string()]);
    assert_eq!((a.connections_accepted(), b.connections_accepted()), (1, 1));
    // The view and the tree show it.
    let view = channel.describe().await.ok_or("no view")?;
    for (backend, proxy) in [(&a, &own), (&b, &common)] {
        let found = view.subchannels.iter().find(|view| view.address == backend.address());
        assert_eq!(found.ok_or("no subchannel")?.proxy, Some(proxy.address()));
        let text = view.tree.to_string();
        assert!(text.contains(&format!("through {}", proxy.address())), "{text}");
    }
    drop(channel);
    own.wait_open_tunnels(0).await?;
    Ok(())
}

#[tokio::test]
async fn a86_12_without_a_proxy_or_without_the_wrapper_connections_are_direct() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    plane.set(priorities("cluster", [[&backend]]));
    assert_eq!(ask(&proxied(&plane).build()?).await?, "a");
    plane.set_all([
        eds_cluster("cluster").into(),
        priorities("cluster", [[endpoint(&backend).proxy(proxy.address())]]).into(),
    ]);
    assert_eq!(ask(&proxied(&plane).build()?).await?, "a");
    assert_eq!(proxy.requests(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a86_08_a86_15_invalid_settings_are_rejected_with_a_reason() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    // The gate is closed.
    let status = ask(&builder(&plane).build()?).await.unwrap_err();
    assert!(status.message().contains("Http11ProxyUpstreamTransport is not supported"), "{status}");
    // A name instead of an address.
    let mut bad = priorities("cluster", [[endpoint(&backend).proxy(proxy.address())]]);
    let metadata = bad.endpoints[0].lb_endpoints[0].metadata.as_mut().ok_or("no metadata")?;
    let value = metadata.typed_filter_metadata.values_mut().next().ok_or("no value")?;
    let name = b"127.0.0.1";
    let at = value.value.windows(name.len()).position(|part| part == name).ok_or("no address")?;
    value.value[at..at + name.len()].copy_from_slice(b"proxy.lan");
    plane.set(bad);
    let status = ask(&proxied(&plane).build()?).await.unwrap_err();
    for part in ["typed_filter_metadata", "proxy_address", "\"proxy.lan\" is not an IP address"] {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    Ok(())
}

#[tokio::test]
async fn a86_04_a86_06_tls_runs_through_the_tunnel_to_the_endpoint() -> TestResult {
    let (ca, folder) = (Authority::new("test CA"), CertificateFolder::new()?);
    folder.write_ca(&[&ca])?;
    let backend =
        Backend::start("a").await?.with_tls(&ServerTls::new(&ca.issue(Leaf::new("a").dns("a.example"))));
    let proxy = Proxy::start().await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    let cluster = |name| eds_cluster("cluster").tls(upstream_tls("certs").server_name(name)).http_connect();
    plane.set(cluster("a.example"));
    let roots = CertificateFiles {
        identity: None,
        roots: Some(RootsFile::CaCertificates(folder.ca_file())),
        refresh_interval: Duration::from_secs(1),
    };
    let bootstrap = Bootstrap::builder()
        .server(plane.address().to_string())
        .certificate_provider("certs", roots)
        .build()?;
    let channel = |credentials| {
        XdsChannel::builder(&format!("xds:///{SERVICE}"))
            .bootstrap(bootstrap.clone())
            .client_pool(ClientPool::new())
            .gates(gate())
            .credentials(credentials)
            .build()
    };
    let secured = channel(XdsCredentials::default())?;
    assert_eq!(ask(&secured).await?, "a");
    assert_eq!(proxy.requests(), [backend.address().to_string()]);
    let view = secured.describe().await.ok_or("no view")?;
    assert!(view.subchannels[0].sockets.iter().any(|socket| socket.tls.is_some()), "{view:?}");
    let text = view.tree.to_string();
    assert!(text.contains("through") && text.contains("TLS"), "{text}");
    // The certificate of the endpoint is verified, not that of the proxy.
    plane.set(cluster("b.example"));
    let status = until_failure(&secured, "its names").await;
    assert_names(&status, proxy.address(), backend.address(), &["through the proxy", "b.example"]);
    // A86-06: without xDS credentials the TLS settings are ignored, and the proxy is not.
    let before = proxy.requests().len();
    ask(&channel(XdsCredentials::Plaintext)?).await.unwrap_err();
    assert!(proxy.requests().len() > before);
    backend.wait_handshake_error().await?;
    Ok(())
}

#[tokio::test]
async fn a_refusal_is_told_to_rpcs_and_ends_with_the_backoff() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    proxy.refuse(403, "Forbidden by policy");
    let channel = proxied(&plane).build()?;
    let status = ask(&channel).await.unwrap_err();
    let refused = format!("refused CONNECT {}: 403 Forbidden by policy", backend.address());
    assert_names(&status, proxy.address(), backend.address(), &[&refused]);
    let text = channel.describe().await.ok_or("no view")?.tree.to_string();
    assert!(text.contains(&refused), "{text}");
    proxy.recover();
    channel.reset_connect_backoff();
    until_only(&channel, &["a"]).await;
    // A proxy that does not reach the endpoint says why.
    backend.kill().await;
    until_failure(&channel, "502").await;
    Ok(())
}

#[tokio::test]
async fn hostile_and_dead_proxies_fail_the_attempt_and_are_named() -> TestResult {
    let backend = Backend::start("a").await?;
    let proxy = Proxy::start().await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    let failure = async |timeout| -> Result<Status, Box<dyn std::error::Error>> {
        let channel = proxied(&plane).connect_timeout(timeout).build()?;
        Ok(ask(&channel).await.unwrap_err())
    };
    let expect = |status: Status, why: &str| {
        assert_names(&status, proxy.address(), backend.address(), &[why]);
    };
    proxy.answer_with("SSH-2.0-OpenSSH_9.6\r\n");
    expect(failure(PATIENCE).await?, "it is not HTTP/1, but \"SSH-2.0-OpenSSH_9.6");
    proxy.answer_endlessly("HTTP/1.1 200 OK\r\nx: ", "y");
    expect(failure(PATIENCE).await?, "its header does not end within 16384 bytes");
    proxy.answer_endlessly("HTTP/1.1 200 OK\r\n", "x: y\r\n");
    expect(failure(PATIENCE).await?, "more than 100 headers");
    proxy.answer_endlessly("", "HTTP/1.1 100 Continue\r\n\r\n");
    expect(failure(PATIENCE).await?, "its header does not end within 16384 bytes");
    // The time limit of the attempt holds for the exchange with the proxy.
    proxy.hang();
    let limit = Duration::from_millis(300);
    expect(failure(limit).await?, "did not answer CONNECT");
    proxy.answer_with("HTTP/1.1 200 OK\r\n\r\n");
    expect(failure(limit).await?, "no HTTP/2 SETTINGS");
    let dead = dead_address()?;
    plane.set(priorities("cluster", [[endpoint(&backend).proxy(dead.address())]]));
    let status = failure(PATIENCE).await?;
    assert_names(&status, dead.address(), backend.address(), &["connecting to the proxy", "refused"]);
    assert_eq!(backend.connections_accepted(), 0);
    Ok(())
}

#[tokio::test]
async fn a86_13_the_same_endpoint_with_and_without_a_proxy_has_two_connections() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    plane.set_all([
        route_config("route", [virtual_host(["*"], [route_for("direct", "direct"), route("cluster")])])
            .into(),
        eds_cluster("direct").into(),
        priorities("direct", [[&backend]]).into(),
    ]);
    let channel = proxied(&plane).build()?;
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!(ask_for(&channel, "direct").await?, "a");
    assert_eq!((proxy.tunnels(), backend.connections_accepted()), (1, 2));
    let view = channel.describe().await.ok_or("no view")?;
    let mut proxies: Vec<_> = view.subchannels.iter().map(|subchannel| subchannel.proxy).collect();
    proxies.sort();
    assert_eq!(proxies, [None, Some(proxy.address())]);
    Ok(())
}

#[tokio::test]
async fn a86_13_a_changed_proxy_reconnects_and_fails_no_rpc() -> TestResult {
    let (first, second) = (Proxy::start().await?, Proxy::start().await?);
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, first.address()).await;
    let channel = proxied(&plane).build()?;
    assert_eq!(ask(&channel).await?, "a");
    let traffic = Load::start(&channel, 2);
    plane.set(priorities("cluster", [[endpoint(&backend).proxy(second.address())]]));
    second.wait_open_tunnels(1).await?;
    // Then without a proxy.
    plane.set(priorities("cluster", [[&backend]]));
    first.wait_open_tunnels(0).await?;
    second.wait_open_tunnels(0).await?;
    let (calls, failures) = traffic.stop().await;
    assert!(calls > 0 && failures.is_empty(), "{calls}: {failures:?}");
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!((first.tunnels(), second.tunnels(), backend.connections_accepted()), (1, 1, 3));
    // A bad update leaves the last good one in use.
    let mut bad = priorities("cluster", [[endpoint(&backend).proxy(first.address())]]);
    for value in bad.endpoints[0].lb_endpoints[0]
        .metadata
        .iter_mut()
        .flat_map(|m| m.typed_filter_metadata.values_mut())
    {
        value.value.clear();
    }
    plane.set(bad);
    plane.wait_nack(EDS).await?;
    assert_eq!(ask(&channel).await?, "a");
    plane.set(eds_cluster("cluster"));
    assert_eq!(ask(&channel).await?, "a");
    assert_eq!(plane.version(CDS), "3");
    Ok(())
}

/// Notes the addresses that it dials.
struct Noting(TcpConnector, Arc<Mutex<Vec<String>>>);

impl Connector for Noting {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        self.1.lock().unwrap().push(address.to_string());
        self.0.connect(address)
    }
}

#[tokio::test]
async fn a86_13_the_connector_of_the_program_dials_the_proxy() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let plane = mesh_through(&backend, proxy.address()).await;
    let dialed = Arc::new(Mutex::new(Vec::new()));
    let connector = Noting(TcpConnector::default(), Arc::clone(&dialed));
    assert_eq!(ask(&proxied(&plane).connector(connector).build()?).await?, "a");
    assert_eq!(*dialed.lock().unwrap(), [format!("ipv4:{}", proxy.address())]);
    Ok(())
}

#[tokio::test]
async fn a61_a86_each_address_of_an_endpoint_is_reached_through_its_proxy() -> TestResult {
    let proxy = Proxy::start().await?;
    let backend = Backend::start("a").await?;
    let dead = dead_address()?;
    let plane = mesh(&[]).await;
    let both = endpoint(&dead).additional_address(backend.address()).proxy(proxy.address());
    plane.set_all([proxied_cluster().into(), priorities("cluster", [[both]]).into()]);
    assert_eq!(ask(&proxied(&plane).build()?).await?, "a");
    assert_eq!(proxy.requests(), [dead.address().to_string(), backend.address().to_string()]);
    Ok(())
}
