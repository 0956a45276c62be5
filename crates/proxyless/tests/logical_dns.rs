//! Clusters whose endpoints are host names (gRFC A37).

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use proxyless::dns::{DnsAnswer, DnsRefresh, Resolve, ResolveError, ResolveErrorKind, Resolving};
use proxyless::{Bootstrap, Gates, XdsChannelBuilder};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tokio::sync::watch;

const HOST: &str = "db.test";

/// A resolver with the entries of the test. A name without an entry does not exist.
#[derive(Clone, Default)]
struct Names {
    known: Arc<Mutex<BTreeMap<String, Vec<SocketAddr>>>>,
    asked: Arc<watch::Sender<Vec<String>>>,
}

impl Names {
    fn new(host: &str, backends: &[&Backend]) -> Self {
        let names = Self::default();
        names.set(host, backends);
        names
    }

    fn set(&self, host: &str, backends: &[&Backend]) {
        let addresses = backends.iter().map(|backend| backend.address()).collect();
        self.known.lock().unwrap().insert(host.to_owned(), addresses);
    }

    fn asked(&self) -> usize {
        self.asked.borrow().len()
    }

    async fn wait_asked(&self, count: usize) {
        let mut asked = self.asked.subscribe();
        let waiting = asked.wait_for(|asked| asked.len() >= count);
        tokio::time::timeout(PATIENCE, waiting).await.expect("the name is not asked for").unwrap();
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        self.asked.send_modify(|asked| asked.push(format!("{host}:{port}")));
        let addresses = self.known.lock().unwrap().get(host).cloned();
        Box::pin(async move {
            let addresses = addresses.ok_or_else(|| ResolveError::new(host, ResolveErrorKind::NotFound))?;
            Ok(DnsAnswer { addresses, ttl: None })
        })
    }
}

/// One cluster, `cluster`, that is [`HOST`] at port 443.
async fn dns_mesh() -> ControlPlane {
    let plane = mesh(&[]).await;
    plane.set(logical_dns_cluster("cluster", HOST, 443));
    plane
}

fn with_names(plane: &ControlPlane, names: &Names) -> XdsChannelBuilder {
    builder(plane).dns_resolver(names.clone()).dns_min_interval(Duration::from_millis(20))
}

#[tokio::test]
async fn a37_29_a_logical_dns_cluster_serves() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = dns_mesh().await;
    let names = Names::new(HOST, &[&a, &b]);
    let channel = with_names(&plane, &names).build()?;
    // A61: one endpoint with two addresses, so one connection.
    assert_eq!(spread(&channel, 20).await, BTreeMap::from([("a".to_owned(), 20)]));
    assert_eq!(*names.asked.borrow(), ["db.test:443"]);
    assert_eq!((a.connections(), b.connections()), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a37_29_localhost_and_literals_need_no_resolver() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = mesh(&[]).await;
    for host in ["localhost", "127.0.0.1"] {
        plane.set(logical_dns_cluster("cluster", host, a.address().port()));
        let names = Names::default();
        assert_eq!(ask(&with_names(&plane, &names).build()?).await?, "a", "{host}");
        assert_eq!(names.asked(), 0);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_34_lost_connections_bring_new_addresses() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = dns_mesh().await;
    let names = Names::new(HOST, &[&a]);
    let channel = with_names(&plane, &names).build()?;
    until_only(&channel, &["a"]).await;
    names.set(HOST, &[&b]);
    a.kill().await;
    until_only(&channel, &["b"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_brings_new_addresses_and_fails_no_call() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = dns_mesh().await;
    let names = Names::new(HOST, &[&a]);
    let channel =
        with_names(&plane, &names).dns_refresh(DnsRefresh::Every(Duration::from_secs(1))).build()?;
    until_only(&channel, &["a"]).await;
    let load = Load::start(&channel, 2);
    names.set(HOST, &[&b]);
    until_only(&channel, &["b"]).await;
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty() && succeeded > 0, "{succeeded} succeeded, failed: {failed:?}");
    a.wait_connections(0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a37_40_an_aggregate_falls_from_eds_to_dns_and_back() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = mesh(&[]).await;
    plane.set_all([
        aggregate_cluster("cluster", ["eds", "dns"]).into(),
        eds_cluster("eds").into(),
        priorities("eds", [[&near]]).into(),
        logical_dns_cluster("dns", HOST, 443).into(),
    ]);
    let names = Names::new(HOST, &[&far]);
    let channel = with_names(&plane, &names).build()?;
    until_only(&channel, &["near"]).await;
    near.kill().await;
    until_only(&channel, &["far"]).await;
    // A37-61: the connection attempts of the EDS leaf do not trigger the resolver.
    let asked = names.asked();
    for _ in 0..5 {
        channel.reset_connect_backoff();
        until_only(&channel, &["far"]).await;
    }
    assert_eq!(names.asked(), asked);
    near.restart().await?;
    channel.reset_connect_backoff();
    until_only(&channel, &["near"]).await;
    Ok(())
}

#[tokio::test]
async fn a37_37_a_name_that_does_not_exist_is_named_in_the_error() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = dns_mesh().await;
    let names = Names::default();
    let channel = with_names(&plane, &names).build()?;
    let status = ask(&channel).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    for part in ["db.test:443", "NXDOMAIN"] {
        assert!(status.message().contains(part), "{part} is not in {:?}", status.message());
    }
    // It is queried again, by itself or at once.
    names.set(HOST, &[&a]);
    channel.reset_connect_backoff();
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test]
async fn a37_39_a_lost_name_does_not_cost_its_addresses() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = dns_mesh().await;
    let names = Names::new(HOST, &[&a]);
    let channel = with_names(&plane, &names).build()?;
    ask(&channel).await?;
    names.known.lock().unwrap().clear();
    // The connection is lost, the query fails, and the old address serves again.
    a.goaway();
    names.wait_asked(2).await;
    a.wait_connections_accepted(2).await?;
    until_only(&channel, &["a"]).await;
    Ok(())
}

#[tokio::test]
async fn a81_a_trusted_server_may_make_the_name_the_authority() -> TestResult {
    let a = Backend::start("a").await?;
    let plane = dns_mesh().await;
    plane.set(route_config("route", [virtual_host(["*"], [route("cluster").auto_host_rewrite()])]));
    let names = Names::new(HOST, &[&a]);
    let json = plane.bootstrap_json();
    let trusted = json.replace(r#"["xds_v3"]"#, r#"["xds_v3", "trusted_xds_server"]"#);
    assert_ne!(json, trusted);
    let mut open = Gates::default();
    open.authority_rewrite = true;
    for (json, gates, expected) in
        [(&trusted, open, "db.test:443"), (&trusted, Gates::default(), SERVICE), (&json, open, SERVICE)]
    {
        let bootstrap = Bootstrap::from_json(json)?;
        let channel = with_names(&plane, &names).bootstrap(bootstrap).gates(gates).build()?;
        ask(&channel).await?;
        let call = a.calls().pop().ok_or("no call")?;
        assert_eq!(call.authority(), Some(expected), "{gates:?} {json}");
    }
    Ok(())
}
