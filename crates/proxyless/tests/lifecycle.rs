//! Sharing between channels, and cleanup.

mod common;

use common::*;
use proxyless::{BuildError, ClientPool, ClientSharing, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, EDS};

#[test]
fn outside_a_runtime_connect_is_an_error() {
    let json = r#"{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}"#;
    let bootstrap = proxyless::Bootstrap::from_json(json).unwrap();
    let error = XdsChannel::builder("xds:///x").bootstrap(bootstrap).build().unwrap_err();
    assert!(matches!(error, BuildError::NoRuntime), "{error}");
}

#[tokio::test]
async fn a27_34_targets_that_are_not_ours_are_refused() {
    for (target, part) in [("xds://authority", "xds:///name"), ("xds:///", "names no"), ("dns:///x", "xds")] {
        let error = XdsChannel::new(target).unwrap_err();
        assert!(matches!(error, BuildError::Target(_)), "{target}: {error}");
        assert!(error.to_string().contains(part), "{target}: {error}");
    }
}

#[tokio::test]
async fn a27_01_channels_share_one_stream_unless_told_otherwise() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(listener("other.example", "route"));
    let pool = ClientPool::new();
    let build = |target: &str, sharing| {
        let builder = XdsChannel::builder(target).bootstrap(bootstrap(&plane)).client_pool(pool.clone());
        builder.client_sharing(sharing).build().unwrap()
    };
    let own = &format!("xds:///{SERVICE}");
    let one = build(own, ClientSharing::PerProcess);
    let two = build("xds:///other.example", ClientSharing::PerProcess);
    ask(&one).await?;
    ask(&two).await?;
    assert_eq!(plane.streams_opened(), 1);

    let three = build(own, ClientSharing::PerTarget);
    let four = build("xds:///other.example", ClientSharing::PerTarget);
    ask(&three).await?;
    ask(&four).await?;
    assert_eq!(plane.streams_opened(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_last_handle_drops_everything_ends() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    let clone = channel.clone();
    ask(&channel).await?;
    drop(channel);
    ask(&clone).await?;
    assert_eq!((plane.open_streams(), backend.connections()), (1, 1));
    drop(clone);
    plane.wait_open_streams(0).await?;
    backend.wait_connections(0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_still_coming_outlives_its_channel() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(proxyless_testkit::echo::EchoRequest::new("0")).await?;
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut client = proxyless_testkit::echo::EchoClient::new(channel);
    let mut answers = client.chat(requests).await?.into_inner();
    assert!(answers.message().await?.is_some());
    drop(client);
    plane.wait_open_streams(0).await?;
    sender.send(proxyless_testkit::echo::EchoRequest::new("1")).await?;
    assert_eq!(answers.message().await?.ok_or("the stream ended")?.message, "1");
    drop(sender);
    assert!(answers.message().await?.is_none());
    Ok(())
}

/// A31: an RPC with response headers is not picked for again, so it releases its cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a31_a_stream_that_has_begun_does_not_keep_its_cluster_subscribed() -> TestResult {
    let (old, new) = (Backend::start("old").await?, Backend::start("new").await?);
    let plane = mesh(&[&old]).await;
    plane.set_all([eds_cluster("next").into(), priorities("next", [[&new]]).into()]);
    let channel = channel(&plane);
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(proxyless_testkit::echo::EchoRequest::new("0")).await?;
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut client = proxyless_testkit::echo::EchoClient::new(channel.clone());
    let mut answers = client.chat(requests).await?.into_inner();
    assert!(answers.message().await?.is_some());
    plane.set(simple_route_config("route", "next"));
    plane.wait_subscriptions(CDS, &["next"]).await?;
    plane.wait_subscriptions(EDS, &["next"]).await?;
    until_only(&channel, &["new"]).await;
    // The stream continues.
    sender.send(proxyless_testkit::echo::EchoRequest::new("1")).await?;
    assert_eq!(answers.message().await?.ok_or("the stream ended")?.message, "1");
    drop(sender);
    assert!(answers.message().await?.is_none());
    old.wait_connections(0).await?;
    Ok(())
}

/// Two runtimes share a client; one ends; the other's channels continue.
#[test]
fn a_client_outlives_the_runtime_that_started_it() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let (a, b) = servers.block_on(async {
        Ok::<_, std::io::Error>((Backend::start("a").await?, Backend::start("b").await?))
    })?;
    let plane = servers.block_on(mesh(&[&a]));
    let pool = ClientPool::new();
    let build = || {
        let builder = XdsChannel::builder(&format!("xds:///{SERVICE}")).bootstrap(bootstrap(&plane));
        builder.client_pool(pool.clone()).build().unwrap()
    };

    let first = tokio::runtime::Runtime::new()?;
    let second = tokio::runtime::Runtime::new()?;
    // The first runtime's channel starts the client.
    let started = first.block_on(async { build() });
    assert_eq!(first.block_on(ask(&started))?, "a");
    let other = second.block_on(async { build() });
    assert_eq!(second.block_on(ask(&other))?, "a");
    assert_eq!(plane.streams_opened(), 1);

    first.shutdown_background();
    drop(started);
    plane.set(priorities("cluster", [[&b]]));
    second.block_on(until_only(&other, &["b"]));
    servers.block_on(plane.wait_ack(EDS))?;
    assert_eq!(plane.streams_opened(), 1, "the client was started again");
    Ok(())
}

/// A channel that is used after its runtime has ended fails with that reason; it does not wait.
#[test]
fn rpcs_fail_when_the_runtime_of_their_channel_has_ended() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let backend = servers.block_on(Backend::start("a"))?;
    let plane = servers.block_on(mesh(&[&backend]));
    let home = tokio::runtime::Runtime::new()?;
    let (used, unused) = home.block_on(async { (channel(&plane), channel(&plane)) });
    assert_eq!(home.block_on(ask(&used))?, "a");
    drop(home);
    for channel in [used, unused] {
        let mut client = proxyless_testkit::echo::EchoClient::new(channel);
        // Without a deadline.
        let call = client.unary(proxyless_testkit::echo::EchoRequest::new("hello"));
        let failed = servers.block_on(async { tokio::time::timeout(PATIENCE, call).await })?.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Unavailable, "{failed:?}");
        assert!(failed.message().contains("runtime"), "{failed:?}");
    }
    Ok(())
}

#[test]
fn the_end_of_the_runtime_is_a_better_reason_than_the_last_failure() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let refuses = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let plane = servers.block_on(mesh_of(&[refuses]));
    let home = tokio::runtime::Runtime::new()?;
    let channel = home.block_on(async { channel(&plane) });
    home.block_on(until_failure(&channel, "refused"));
    drop(home);
    let failed = servers.block_on(ask(&channel)).unwrap_err();
    assert!(failed.message().contains("runtime"), "{failed:?}");
    Ok(())
}

/// A channel on a runtime that is not being run does not block the others of its client.
#[test]
fn an_idle_runtime_does_not_stall_other_channels() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let backends = servers.block_on(async {
        Ok::<_, std::io::Error>((
            Backend::start("a").await?,
            Backend::start("b").await?,
            Backend::start("c").await?,
        ))
    })?;
    let (a, b, c) = &backends;
    let plane = servers.block_on(mesh(&[a]));
    let pool = ClientPool::new();
    let build = || {
        let builder = XdsChannel::builder(&format!("xds:///{SERVICE}")).bootstrap(bootstrap(&plane));
        builder.client_pool(pool.clone()).build().unwrap()
    };
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stalled = idle.block_on(async { build() });
    assert_eq!(idle.block_on(ask(&stalled))?, "a");
    let live = tokio::runtime::Runtime::new()?;
    let other = live.block_on(async { build() });
    assert_eq!(live.block_on(ask(&other))?, "a");
    // From here on the first runtime is not run: its channel processes nothing.
    plane.set(priorities("cluster", [[b]]));
    live.block_on(until_only(&other, &["b"]));
    // The client waited for it once; later updates do not wait at all.
    let updates = async {
        for _ in 0..6 {
            for (name, backend) in [("a", a), ("b", b), ("c", c)] {
                plane.set(priorities("cluster", [[backend]]));
                until_only(&other, &[name]).await;
            }
        }
    };
    live.block_on(async { tokio::time::timeout(PATIENCE, updates).await })?;
    // When it runs again, it catches up.
    idle.block_on(until_only(&stalled, &["c"]));
    Ok(())
}
