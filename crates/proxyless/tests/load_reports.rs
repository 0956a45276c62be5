//! Load reports over real sockets: the reports match the calls.

mod common;

use std::time::Duration;

use common::*;
use proxyless::{ClientPool, Gates, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};
use tonic::{Code, Request};

/// A report with `named_metrics { "k": 1.0 }`.
const ORCA_REPORT: &str = "QgwKAWsRAAAAAAAA8D8";

/// A mesh whose cluster reports load.
async fn reporting_mesh(backends: &[&Backend]) -> ControlPlane {
    let plane = mesh(backends).await;
    plane.set(eds_cluster("cluster").report_load());
    plane
}

async fn ask_times(channel: &XdsChannel, count: usize) {
    for _ in 0..count {
        ask(channel).await.expect("an answer");
    }
}

#[tokio::test]
async fn a27_57_a27_93_x_16_reports_add_up_to_the_calls() -> TestResult {
    let (near, far) = (Backend::start("near").await?, Backend::start("far").await?);
    let plane = mesh(&[]).await;
    plane.set_all([
        eds_cluster("cluster").eds_service_name("endpoints").report_load().into(),
        assignment("endpoints", [locality("zone-a", [&near]), locality("zone-b", [&far])]).into(),
    ]);
    let channel = channel(&plane);
    ask_times(&channel, 40).await;
    let load = plane.wait_load("cluster", |load| load.succeeded == 40).await?;
    assert_eq!((load.issued, load.failed, load.in_progress, load.dropped), (40, 0, 0, 0));
    let by_zone = [("zone-a".to_owned(), near.count()), ("zone-b".to_owned(), far.count())];
    assert_eq!(load.issued_by_zone, by_zone.into());
    let reports = plane.load_reports();
    let (first, later) = reports.split_first().ok_or("no report")?;
    let node = first.message().node.as_ref().ok_or("no node")?;
    assert_eq!(node.id, "testkit-node");
    assert!(node.client_features.iter().any(|feature| feature == "envoy.lrs.supports_send_all_clusters"));
    assert!(first.message().cluster_stats.is_empty());
    for report in later {
        assert!(report.message().node.is_none());
        let stats = report.cluster("cluster").ok_or("a report without the cluster")?;
        assert_eq!(stats.cluster_service_name, "endpoints");
        assert!(stats.upstream_locality_stats.iter().all(|stats| stats.upstream_endpoint_stats.is_empty()));
        assert!(stats.load_report_interval.as_ref().is_some_and(|interval| interval.seconds < 10));
    }
    // ADS does not say it.
    let on_ads =
        plane.requests().iter().any(|request| format!("{:?}", request.message()).contains("envoy.lrs"));
    assert!(!on_ads);
    Ok(())
}

#[tokio::test]
async fn a27_47_a27_94_a37_51_the_stream_follows_the_lrs_server() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let channel = channel(&plane);
    ask_times(&channel, 5).await;
    assert_eq!(plane.load_streams_opened(), 0);
    plane.set(eds_cluster("cluster").report_load());
    plane.wait_open_load_streams(1).await?;
    ask_times(&channel, 7).await;
    plane.wait_load("cluster", |load| load.succeeded == 7).await?;
    plane.set(eds_cluster("cluster"));
    plane.wait_open_load_streams(0).await?;
    ask_times(&channel, 3).await;
    // And back again: the load in between is not reported.
    plane.set(eds_cluster("cluster").report_load());
    plane.wait_open_load_streams(1).await?;
    ask_times(&channel, 2).await;
    let load = plane.wait_load("cluster", |load| load.succeeded >= 9).await?;
    assert_eq!((load.issued, load.succeeded), (9, 9));
    assert_eq!(backend.connections_accepted(), 1, "none of it touched the connection");
    Ok(())
}

#[tokio::test]
async fn calls_in_progress_are_reported_and_those_given_up_are_errors() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = reporting_mesh(&[&backend]).await;
    let channel = channel(&plane);
    ask_times(&channel, 1).await;
    backend.hang();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { ask(&channel).await })
        })
        .collect();
    backend.wait_in_flight(4).await?;
    let load = plane.wait_load("cluster", |load| load.in_progress == 4).await?;
    assert_eq!((load.issued, load.succeeded, load.failed), (5, 1, 0));
    let reports = load.reports;
    plane.wait_load("cluster", |load| load.reports >= reports + 2).await?;
    // One is cancelled, the others succeed; each was issued once.
    calls[0].abort();
    plane.wait_load("cluster", |load| load.failed == 1).await?;
    backend.resume();
    let load = plane.wait_load("cluster", |load| load.in_progress == 0).await?;
    assert_eq!((load.issued, load.succeeded, load.failed), (5, 4, 1));
    Ok(())
}

#[tokio::test]
async fn errors_of_backends_are_errors() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = reporting_mesh(&[&backend]).await;
    let channel = channel(&plane);
    backend.fail_with(Code::NotFound);
    for _ in 0..3 {
        assert_eq!(ask(&channel).await.unwrap_err().code(), Code::NotFound);
    }
    let load = plane.wait_load("cluster", |load| load.failed == 3).await?;
    assert_eq!((load.issued, load.succeeded), (3, 0));
    Ok(())
}

#[tokio::test]
async fn x_13_a27_106_drops_are_reported_by_category_and_in_total() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set_all([
        // A unique name: all channels of the process count together.
        simple_route_config("route", "limited").into(),
        eds_cluster("limited").max_requests(1).report_load().into(),
        priorities("limited", [[&backend]]).drops("lottery", 500_000).into(),
    ]);
    let channel = channel(&plane);
    let mut dropped = 0;
    for _ in 0..100 {
        dropped += u64::from(ask(&channel).await.is_err());
    }
    assert!((20..80).contains(&dropped), "{dropped}");
    let load = plane.wait_load("limited", |load| load.dropped == dropped).await?;
    assert_eq!(load.dropped_by_category, [("lottery".to_owned(), dropped)].into());
    // Beyond the limit: in the total, in no category.
    plane.set(priorities("limited", [[&backend]]));
    tokio::time::timeout(PATIENCE, async {
        let mut run = 0;
        while run < 30 {
            let answered = ask(&channel).await.is_ok();
            (run, dropped) = if answered { (run + 1, dropped) } else { (0, dropped + 1) };
        }
    })
    .await?;
    backend.hang();
    let held = tokio::spawn({
        let channel = channel.clone();
        async move { ask(&channel).await }
    });
    backend.wait_in_flight(1).await?;
    for _ in 0..5 {
        assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    }
    let load = plane.wait_load("limited", |load| load.dropped == dropped + 5).await?;
    assert_eq!(load.dropped_by_category, [("lottery".to_owned(), dropped)].into());
    backend.resume();
    held.await??;
    Ok(())
}

#[tokio::test]
async fn only_the_clusters_that_the_server_names_are_reported() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let plane = mesh(&[]).await;
    plane.set_load_clusters(Some(&["two"]));
    plane.set_all([
        route_config("route", [virtual_host(["*"], [weighted_route([("one", 1), ("two", 1)])])]).into(),
        eds_cluster("one").report_load().into(),
        eds_cluster("two").report_load().into(),
        priorities("one", [[&a]]).into(),
        priorities("two", [[&b]]).into(),
    ]);
    let channel = channel(&plane);
    until_only(&channel, &["a", "b"]).await;
    plane.wait_load("two", |load| load.succeeded == b.count()).await?;
    assert_eq!(plane.load("one").reports, 0);
    // The server changes its request on the same stream.
    plane.set_load_clusters(None);
    until_only(&channel, &["a", "b"]).await;
    plane.wait_load("one", |load| load.succeeded > 0).await?;
    assert_eq!(plane.load_streams_opened(), 1);
    Ok(())
}

#[tokio::test]
async fn nothing_is_lost_or_counted_twice_when_streams_end() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = reporting_mesh(&[&backend]).await;
    let channel = channel(&plane);
    let load = Load::start(&channel, 4);
    for _ in 0..2 {
        let (opened, before) = (plane.load_streams_opened(), plane.load("cluster").reports);
        // Right after a report nothing is in transit that the end of the stream could lose.
        plane.wait_load("cluster", |load| load.reports > before).await?;
        plane.close_load_streams();
        plane.wait_load_report(|report| report.stream() > opened).await?;
    }
    let (succeeded, failed) = load.stop().await;
    assert!(failed.is_empty(), "{failed:?}");
    let reported = plane.wait_load("cluster", |load| load.succeeded >= succeeded as u64).await?;
    assert_eq!((reported.issued, reported.succeeded), (succeeded as u64, succeeded as u64));
    assert!(plane.load_streams_opened() >= 3);
    // A57: each stream begins with the node.
    let mut last = 0;
    for report in plane.load_reports() {
        assert_eq!(report.message().node.is_some(), report.stream() != last);
        last = report.stream();
    }
    Ok(())
}

#[tokio::test]
async fn a27_41_channels_that_share_a_client_share_its_reports() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = reporting_mesh(&[&backend]).await;
    let pool = ClientPool::new();
    let (one, two) =
        (builder(&plane).client_pool(pool.clone()).build()?, builder(&plane).client_pool(pool).build()?);
    ask_times(&one, 3).await;
    ask_times(&two, 4).await;
    plane.wait_load("cluster", |load| load.succeeded == 7).await?;
    // The numbers of a dropped channel are kept.
    ask_times(&one, 5).await;
    drop(one);
    let load = plane.wait_load("cluster", |load| load.succeeded == 12).await?;
    assert_eq!((load.issued, plane.load_streams_opened()), (12, 1));
    Ok(())
}

#[tokio::test]
async fn a37_52_load_goes_to_the_server_that_the_cluster_came_from() -> TestResult {
    let backend = Backend::start("a").await?;
    let planes = [reporting_mesh(&[&backend]).await, reporting_mesh(&[&backend]).await];
    // One pool, and clusters of the same name.
    let pool = ClientPool::new();
    let mut channels = Vec::new();
    for (plane, count) in planes.iter().zip([3, 4]) {
        let channel = builder(plane).client_pool(pool.clone()).build()?;
        ask_times(&channel, count).await;
        channels.push(channel);
    }
    for (plane, count) in planes.iter().zip([3, 4]) {
        let load = plane.wait_load("cluster", |load| load.succeeded >= count).await?;
        assert_eq!(load.issued, count);
    }
    Ok(())
}

#[tokio::test]
async fn a64_metrics_of_backends_are_reported_with_the_load() -> TestResult {
    let backend = Backend::start("a").await?;
    backend.add_trailer("endpoint-load-metrics-bin", ORCA_REPORT);
    let plane = reporting_mesh(&[&backend]).await;
    let channel = channel(&plane);
    ask_times(&channel, 6).await;
    let load = plane.wait_load("cluster", |load| load.succeeded == 6).await?;
    assert_eq!(load.metrics, [("k".to_owned(), (6, 6.0))].into());
    Ok(())
}

#[tokio::test]
async fn a85_behind_its_gate_only_listed_metrics_are_reported() -> TestResult {
    let backend = Backend::start("a").await?;
    backend.add_trailer("endpoint-load-metrics-bin", ORCA_REPORT);
    let plane = reporting_mesh(&[&backend]).await;
    let mut gates = Gates::default();
    gates.orca_lrs_propagation = true;
    let channel = builder(&plane).gates(gates).build()?;
    ask_times(&channel, 2).await;
    let load = plane.wait_load("cluster", |load| load.succeeded == 2).await?;
    assert!(load.metrics.is_empty(), "{load:?}");
    let mut cluster = eds_cluster("cluster").report_load();
    cluster.lrs_report_endpoint_metrics = vec!["named_metrics.k".into()];
    plane.set(cluster);
    // Calls that use the new configuration are those with metrics.
    let mut calls = 0;
    tokio::time::timeout(PATIENCE, async {
        while plane.load("cluster").metrics.is_empty() {
            ask(&channel).await.expect("an answer");
            calls += 1;
            tokio::task::yield_now().await;
        }
    })
    .await?;
    let load = plane.wait_load("cluster", |load| load.succeeded == 2 + calls).await?;
    assert_eq!(load.metrics.keys().collect::<Vec<_>>(), ["named_metrics.k"]);
    Ok(())
}

#[tokio::test]
async fn streaming_calls_count_when_they_end() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = reporting_mesh(&[&backend]).await;
    let channel = channel(&plane);
    let (sender, requests) = tokio::sync::mpsc::channel(1);
    sender.send(EchoRequest::new("0")).await?;
    let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(requests));
    request.set_timeout(Duration::from_secs(60));
    let mut answers = EchoClient::new(channel.clone()).chat(request).await?.into_inner();
    assert!(answers.message().await?.is_some());
    plane.wait_load("cluster", |load| (load.issued, load.in_progress) == (1, 1)).await?;
    drop(sender);
    assert!(answers.message().await?.is_none());
    let load = plane.wait_load("cluster", |load| load.in_progress == 0).await?;
    assert_eq!((load.issued, load.succeeded, load.failed), (1, 1, 0));
    Ok(())
}
