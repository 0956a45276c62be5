//! `XdsChannel::ready` and its errors.

mod common;

use std::time::Duration;

use common::*;
use proxyless::{ChannelState, XdsChannel};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use tonic::Code;

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn ready_connects_a_channel_that_went_idle() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(eds_cluster("cluster").lb_policy(pick_first()));
    let channel = channel(&plane);
    for _ in 0..3 {
        channel.ready_within(PATIENCE).await?;
        assert_eq!(channel.state(), ChannelState::Ready);
        // A connection that has served an RPC is stable: its loss begins no backoff.
        ask(&channel).await?;
        backend.goaway();
        let mut states = channel.watch_state();
        tokio::time::timeout(PATIENCE, states.wait_for(|state| *state == ChannelState::Idle)).await??;
    }
    Ok(())
}

#[tokio::test]
async fn who_waits_for_ready_sees_a_service_come() -> TestResult {
    let plane = mesh(&[]).await;
    let channel = channel(&plane);
    let waiting = tokio::spawn({
        let channel = channel.clone();
        async move { channel.ready().await }
    });
    let mut states = channel.watch_state();
    let failed = states.wait_for(|state| *state == ChannelState::TransientFailure);
    tokio::time::timeout(PATIENCE, failed).await??;
    let backend = Backend::start("a").await?;
    plane.set(priorities("cluster", [[&backend]]));
    tokio::time::timeout(PATIENCE, waiting).await???;
    assert!(channel.why_not_ready().await.is_none());
    Ok(())
}

#[tokio::test]
async fn a_channel_that_is_not_ready_says_why() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.withhold(proxyless_testkit::CDS);
    let waits = channel(&plane);
    let why = waits.why_not_ready().await.ok_or("it is IDLE")?;
    assert!(why.message().contains("is IDLE"), "{why:?}");
    let late = waits.ready_within(SHORT).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    for part in ["not ready after 300.000ms", SERVICE, "CONNECTING", "Cluster cluster", "waiting for"] {
        assert!(late.message().contains(part), "{part}: {late:?}");
    }

    plane.release(proxyless_testkit::CDS);
    waits.ready_within(PATIENCE).await?;
    backend.kill().await;
    let failed = channel(&plane);
    let late = failed.ready_within(SHORT).await.unwrap_err();
    for part in ["TRANSIENT_FAILURE", &backend.address().to_string()] {
        assert!(late.message().contains(part), "{part}: {late:?}");
    }

    let missing = XdsChannel::builder("xds:///nowhere.example")
        .bootstrap(bootstrap(&plane))
        .resource_timeout(Duration::from_millis(50))
        .build()?;
    let late = missing.ready_within(SHORT).await.unwrap_err();
    for part in ["TRANSIENT_FAILURE", "nowhere.example", "does not exist"] {
        assert!(late.message().contains(part), "{part}: {late:?}");
    }
    Ok(())
}

#[test]
fn a_channel_whose_runtime_has_ended_is_shut_down_and_says_so() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let backend = servers.block_on(Backend::start("a"))?;
    let plane = servers.block_on(mesh(&[&backend]));
    let home = tokio::runtime::Runtime::new()?;
    let (used, unused) = home.block_on(async { (channel(&plane), channel(&plane)) });
    home.block_on(used.ready())?;
    let waiting = servers.spawn({
        let unused = unused.clone();
        async move { unused.watch_state().wait_for(|state| *state == ChannelState::Shutdown).await.is_ok() }
    });
    drop(home);
    assert!(servers.block_on(waiting)?, "watchers hear of it");
    for channel in [used, unused] {
        assert_eq!(channel.state(), ChannelState::Shutdown);
        // Without a timeout.
        for failed in [
            servers.block_on(channel.ready()).unwrap_err(),
            servers.block_on(channel.ready_within(PATIENCE)).unwrap_err(),
            servers.block_on(channel.why_not_ready()).ok_or("a reason")?,
        ] {
            assert_eq!(failed.code(), Code::Unavailable, "{failed:?}");
            assert!(failed.message().contains("runtime"), "{failed:?}");
        }
        assert!(servers.block_on(channel.describe()).is_none());
    }
    Ok(())
}
