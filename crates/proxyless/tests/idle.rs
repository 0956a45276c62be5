//! Idle channels, and how they become active.

mod common;

use std::time::Duration;

use common::*;
use proxyless::{ChannelState, ClientPool, ConnectivityState, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane, EDS, LDS, RDS};
use tokio_stream::wrappers::ReceiverStream;

const SOON: Duration = Duration::from_millis(100);

fn short_lived(plane: &ControlPlane) -> XdsChannel {
    builder(plane).idle_timeout(SOON).build().unwrap()
}

async fn until_idle(channel: &XdsChannel) {
    let mut states = channel.watch_state();
    let idle = states.wait_for(|state| *state == ChannelState::Idle);
    tokio::time::timeout(PATIENCE, idle).await.expect("it goes IDLE").expect("it lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_without_rpcs_gives_up_all_and_the_next_rpc_brings_it_back() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = short_lived(&plane);
    for round in 1..4 {
        assert_eq!(ask(&channel).await?, "a");
        assert_eq!(plane.streams_opened(), round);
        until_idle(&channel).await;
        plane.wait_open_streams(0).await?;
        backend.wait_connections(0).await?;
        for kind in [LDS, RDS, CDS, EDS] {
            assert!(plane.subscriptions(kind).is_empty(), "{kind}");
        }
        let report = channel.describe().await.ok_or("a report")?;
        assert_eq!((report.state, report.subchannels.len()), (ConnectivityState::Idle, 0));
        assert_eq!((report.calls.started, report.calls.succeeded), (round, round), "what was counted stays");
        assert!(report.tree.root.is_none() && report.tree.routes.is_empty());
        let shown = report.tree.to_string();
        assert!(shown.contains("the next RPC connects"), "{shown}");
    }
    // Changes made meanwhile apply.
    let other = Backend::start("b").await?;
    plane.set(priorities("cluster", [[&other]]));
    assert_eq!(ask(&channel).await?, "b");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_goes_idle_takes_only_its_own_watches_along() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(listener("other.example", "route"));
    let pool = ClientPool::new();
    let build = |name: &str| {
        XdsChannel::builder(&format!("xds:///{name}")).bootstrap(bootstrap(&plane)).client_pool(pool.clone())
    };
    let (idle, live) =
        (build("other.example").idle_timeout(SOON).build()?, build(SERVICE).idle_timeout(None).build()?);
    ask(&live).await?;
    ask(&idle).await?;
    until_idle(&idle).await;
    plane.wait_subscriptions(LDS, &[SERVICE]).await?;
    plane.wait_subscriptions(CDS, &["cluster"]).await?;
    backend.wait_connections(1).await?;
    assert_eq!((ask(&live).await?, ask(&idle).await?), ("a".into(), "a".into()));
    assert_eq!(plane.streams_opened(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_in_flight_keeps_its_channel_from_going_idle() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let (busy, clock) = (short_lived(&plane), short_lived(&plane));
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(EchoRequest::new("0")).await?;
    let mut client = EchoClient::new(busy.clone());
    let mut answers = client.chat(ReceiverStream::new(requests)).await?.into_inner();
    assert!(answers.message().await?.is_some());
    // A different channel shows how much time has passed.
    for _ in 0..5 {
        ask(&clock).await?;
        until_idle(&clock).await;
        assert_eq!(busy.state(), ChannelState::Ready);
    }
    sender.send(EchoRequest::new("1")).await?;
    assert_eq!(answers.message().await?.ok_or("the stream ended")?.message, "1");
    drop(sender);
    assert!(answers.message().await?.is_none());
    until_idle(&busy).await;
    Ok(())
}

/// An RPC that waits for a connection is in flight too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_rpc_that_waits_keeps_its_channel_from_going_idle() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.withhold(EDS);
    let (busy, clock) = (short_lived(&plane), short_lived(&plane));
    let waiting = tokio::spawn({
        let busy = busy.clone();
        async move { ask(&busy).await }
    });
    for _ in 0..3 {
        let mut states = clock.watch_state();
        // It connects while a call waits for it, and goes IDLE when none does.
        tokio::select! {
            _ = clock.ready() => return Err("there are no endpoints".into()),
            found = states.wait_for(|state| *state == ChannelState::Connecting) => drop(found?),
        }
        until_idle(&clock).await;
        assert_eq!(busy.state(), ChannelState::Connecting);
    }
    plane.release(EDS);
    assert_eq!(waiting.await??, "a");
    Ok(())
}

/// RPCs that begin while the channel goes IDLE: all succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_rpc_is_lost_or_fails_because_its_channel_goes_idle() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let mut users = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let channel = short_lived(&plane);
        users.spawn(async move {
            for _ in 0..6 {
                // At the same moment, and from several tasks.
                let calls: Vec<_> = (0..4)
                    .map(|_| {
                        let channel = channel.clone();
                        tokio::spawn(async move {
                            until_idle(&channel).await;
                            ask(&channel).await
                        })
                    })
                    .collect();
                for call in calls {
                    assert_eq!(call.await.expect("no panic").expect("an answer"), "a");
                }
            }
        });
    }
    while let Some(user) = users.join_next().await {
        user?;
    }
    Ok(())
}

/// Only the channel's own task is left.
#[test]
fn an_idle_channel_leaves_no_task_socket_or_watch() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let (a, b) = servers.block_on(async {
        Ok::<_, std::io::Error>((Backend::start("a").await?, Backend::start("b").await?))
    })?;
    let plane = servers.block_on(mesh(&[&a, &b]));
    plane.set_all([
        eds_cluster("eds").into(),
        logical_dns_cluster("dns", "localhost", a.address().port()).into(),
        aggregate_cluster("cluster", ["eds", "dns"]).into(),
        priorities("eds", [[&a, &b]]).into(),
    ]);
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    home.block_on(async {
        let channel = short_lived(&plane);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..3 {
            until_only(&channel, &["a", "b"]).await;
            until_idle(&channel).await;
            plane.wait_open_streams(0).await?;
            a.wait_connections(0).await?;
            b.wait_connections(0).await?;
            let drained = async {
                while tasks() > 1 || plane.connections() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            let left =
                |_| format!("{} tasks, {} connections to the control plane", tasks(), plane.connections());
            tokio::time::timeout(PATIENCE, drained).await.map_err(left)?;
        }
        drop(channel);
        let ended = async {
            while tasks() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.map_err(|_| format!("{} tasks", tasks()))?;
        Ok(())
    })
}
