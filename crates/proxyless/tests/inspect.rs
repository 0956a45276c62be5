//! Inspection of running channels.

mod common;

use common::*;
use proxyless::inspect::{CallsView, Severity};
use proxyless::{ClientPool, ConnectivityState, XdsChannel};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS};
use tonic::Code;

/// Started, succeeded and failed calls.
fn counts(calls: CallsView) -> (u64, u64, u64) {
    (calls.started, calls.succeeded, calls.failed)
}

#[tokio::test]
async fn a_report_has_calls_tree_connections_and_events() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    let idle = channel.describe().await.ok_or("no report")?;
    assert_eq!((idle.state, idle.subchannels.len(), idle.events.len()), (ConnectivityState::Idle, 0, 0));
    ask(&channel).await?;
    ask(&channel).await?;
    backend.fail_with(Code::Internal);
    ask(&channel).await.unwrap_err();

    let report = channel.describe().await.ok_or("no report")?;
    assert_eq!(counts(report.calls), (3, 2, 1));
    assert_eq!(report.id, idle.id);
    let [connection] = &report.subchannels[..] else { panic!("{report:?}") };
    assert_eq!((connection.address, connection.state), (backend.address(), ConnectivityState::Ready));
    assert_eq!(connection.calls, report.calls);
    let [socket] = &connection.sockets[..] else { panic!("{report:?}") };
    assert_eq!((socket.calls, connection.max_connections), (report.calls, 1));
    let text = report.tree.to_string();
    for part in ["any path → cluster", "xds_cluster_impl READY", &backend.address().to_string()] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let told: Vec<_> = report.events.iter().map(|event| event.description.as_str()).collect();
    for part in ["asked for Listener", "new ClusterLoadAssignment cluster in use", "connected", "→ READY"] {
        assert!(told.iter().any(|what| what.contains(part)), "{part} is missing in {told:#?}");
    }
    assert!(report.events.is_sorted_by(|a, b| a.time <= b.time));
    Ok(())
}

#[tokio::test]
async fn a_failover_and_a_reconnect_are_events_and_reasons() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = mesh(&[&near]).await;
    plane.set(priorities("cluster", [[&near], [&far]]));
    let channel = channel(&plane);
    assert_eq!(ask(&channel).await?, "near");
    near.kill().await;
    let moved = async { while ask(&channel).await.ok().as_deref() != Some("far") {} };
    tokio::time::timeout(PATIENCE, moved).await?;
    near.restart().await?;
    let back = async { while ask(&channel).await.ok().as_deref() != Some("near") {} };
    tokio::time::timeout(PATIENCE, back).await?;
    let report = channel.describe().await.ok_or("no report")?;
    let told: Vec<_> = report.events.iter().map(|event| event.description.clone()).collect();
    let expected = [
        format!("{}: connected", near.address()),
        "cluster: failed over from priority 0 to priority 1".to_owned(),
        format!("{}: reconnected", near.address()),
        "cluster: moved up from priority 1 to priority 0".to_owned(),
    ];
    let places: Vec<_> = expected.iter().map(|what| told.iter().position(|told| told == what)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {told:#?}");
    let text = report.tree.to_string();
    assert!(text.contains("cluster: cds READY for") && text.contains("(moved up from priority 1)"), "{text}");
    Ok(())
}

#[tokio::test]
async fn calls_in_flight_and_calls_without_a_connection_are_counted() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    ask(&channel).await?;
    backend.hang();
    let call = tokio::spawn({
        let channel = channel.clone();
        async move { ask(&channel).await }
    });
    backend.wait_in_flight(1).await?;
    let calls = channel.describe().await.ok_or("no report")?.calls;
    assert_eq!((counts(calls), calls.in_flight()), ((2, 1, 0), 1));
    backend.resume();
    call.await??;

    plane.remove(CDS, "cluster");
    let failed = async { while ask(&channel).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, failed).await?;
    let report = channel.describe().await.ok_or("no report")?;
    assert_eq!(report.calls.failed, 1);
    assert_eq!(report.calls.in_flight(), 0);
    let error = report.events.iter().find(|event| event.severity == Severity::Error).ok_or("no error")?;
    assert!(error.description.contains("Cluster cluster: does not exist"), "{}", error.description);
    Ok(())
}

#[tokio::test]
async fn a_pool_lists_its_channels_and_keeps_none_alive() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(listener("other.example", "route"));
    let pool = ClientPool::new();
    let build = |target: &str| {
        XdsChannel::builder(target).bootstrap(bootstrap(&plane)).client_pool(pool.clone()).build().unwrap()
    };
    let (one, two) = (build(&format!("xds:///{SERVICE}")), build("xds:///other.example"));
    ask(&one).await?;
    ask(&two).await?;
    let reports = pool.channels().await;
    let targets: Vec<_> = reports.iter().map(|report| report.target.as_str()).collect();
    assert_eq!(targets, [one.target(), two.target()]);
    let mut ids: Vec<_> = reports.iter().flat_map(|r| [r.id, r.subchannels[0].id]).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "ids are the process's own");
    assert_eq!(pool.channels().await[0].subchannels[0].id, reports[0].subchannels[0].id, "ids stay");
    drop(one);
    assert_eq!(pool.channels().await.len(), 1);
    drop(two);
    assert!(pool.channels().await.is_empty());
    backend.wait_connections(0).await?;
    Ok(())
}

/// A runtime that is not being run, as in a synchronous program between two calls, does not block the others.
#[test]
fn a_channel_that_cannot_answer_is_left_out() -> TestResult {
    let servers = tokio::runtime::Runtime::new()?;
    let backend = servers.block_on(Backend::start("a"))?;
    let plane = servers.block_on(mesh(&[&backend]));
    let pool = ClientPool::new();
    let build = |target: &str| {
        XdsChannel::builder(target).bootstrap(bootstrap(&plane)).client_pool(pool.clone()).build().unwrap()
    };
    let resting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _silent = resting.block_on(async { build("xds:///silent.example") });
    let live = servers.block_on(async { build(&format!("xds:///{SERVICE}")) });
    let reports = servers.block_on(async { tokio::time::timeout(PATIENCE, pool.channels()).await })?;
    assert_eq!(reports.iter().map(|report| report.target.as_str()).collect::<Vec<_>>(), [live.target()]);
    Ok(())
}
