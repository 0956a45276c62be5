//! `/proxyless/history.json`: rates, errors, latencies and marks of a mesh that fails over, as a page that follows gets them.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use http_body_util::BodyExt as _;
use proxyless::XdsChannel;
use proxyless_admin::{Admin, AdminServer, HistorySeries, HistoryView, MarkKind, MetricStore};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use tonic::Code;
use tonic::service::Routes;
use tower::{Service as _, ServiceExt as _};

/// A mesh, and a channel that is measured.
struct Measured {
    rig: Rig,
    channel: XdsChannel,
    admin: AdminServer,
}

impl Measured {
    async fn start() -> Self {
        let rig = Rig::start().await;
        let store = MetricStore::new();
        let channel = rig.builder(&format!("xds:///{SERVICE}")).recorder(store.clone()).build().unwrap();
        let admin = Admin::default().client_pool(rig.pool.clone()).metrics(store).serve(0).await.unwrap();
        Self { rig, channel, admin }
    }

    async fn history(&self, query: &str) -> HistoryView {
        history(self.admin.address(), query).await
    }

    /// Sends RPCs until the history passes.
    async fn until(&self, what: &str, passes: impl Fn(&HistoryView) -> bool) -> HistoryView {
        let mut last = None;
        let reached = async {
            loop {
                for _ in 0..10 {
                    let _ = ask(&self.channel).await;
                }
                let history = self.history("").await;
                if passes(&history) {
                    return history;
                }
                last = Some(history);
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("never: {what}: {last:#?}"))
    }
}

async fn get(address: std::net::SocketAddr, query: &str) -> (u16, Vec<u8>) {
    let uri = format!("http://{address}/proxyless/history.json{query}");
    let mut channel = tonic::transport::Endpoint::from_shared(uri.clone()).unwrap().connect_lazy();
    let request = http::Request::get(uri).body(tonic::body::Body::empty()).unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

async fn history(address: std::net::SocketAddr, query: &str) -> HistoryView {
    serde_json::from_slice(&get(address, query).await.1).unwrap()
}

fn kinds(history: &HistoryView) -> BTreeSet<MarkKind> {
    history.marks.iter().map(|mark| mark.kind).collect()
}

fn some(values: &[Option<f64>]) -> bool {
    values.iter().flatten().any(|value| *value > 0.0)
}

#[tokio::test]
async fn a_failover_is_seen_in_rates_errors_latencies_and_marks() -> TestResult {
    let mesh = Measured::start().await;
    let second = Backend::start("b").await?;
    mesh.rig.plane.set(priorities("cluster", [[&mesh.rig.backend], [&second]]));
    let measured = |series: &HistorySeries| some(&series.rate) && some(&series.p50) && some(&series.p99);
    let history = mesh.until("rates", |it| it.series.len() == 3 && it.series.iter().all(measured)).await;
    let [channel, cluster, endpoint] = &history.series[..] else { panic!("{history:#?}") };
    let target = format!("xds:///{SERVICE}");
    let name =
        |series: &HistorySeries| (series.target.clone(), series.cluster.clone(), series.endpoint.clone());
    let cluster_name = Some("cluster".to_owned());
    assert_eq!(name(channel), (target.clone(), None, None));
    assert_eq!(name(cluster), (target.clone(), cluster_name.clone(), None));
    let first = mesh.rig.backend.address().to_string();
    assert_eq!(name(endpoint), (target, cluster_name, Some(first)));
    for series in &history.series {
        for values in [&series.rate, &series.errors, &series.p50, &series.p99] {
            assert_eq!(values.len(), history.times.len());
        }
    }
    assert_eq!(kinds(&history), [MarkKind::Configuration, MarkKind::Connection].into());

    mesh.rig.backend.fail_with(Code::Internal);
    let failing = |it: &HistoryView| it.series.iter().all(|series| some(&series.errors));
    mesh.until("errors of all", failing).await;
    mesh.rig.backend.succeed();
    mesh.rig.backend.kill().await;
    let failed_over = |it: &HistoryView| it.series.len() == 4 && kinds(it).contains(&MarkKind::Failover);
    let history = mesh.until("a failover", failed_over).await;
    let mark = history.marks.iter().find(|mark| mark.kind == MarkKind::Failover).ok_or("no mark")?;
    assert!(mark.text.starts_with("cluster: failed over from "), "{mark:?}");
    assert!(mark.time > history.times[0] - 1.0, "{mark:?}");
    Ok(())
}

#[tokio::test]
async fn rejected_resources_and_ejections_are_marks() -> TestResult {
    let mesh = Measured::start().await;
    let (b, c) = (Backend::start("b").await?, Backend::start("c").await?);
    let detection = outlier_detection(Duration::from_millis(500), Duration::from_secs(300));
    mesh.rig.plane.set_all([
        eds_cluster("cluster").outlier_detection(detection.failure_percentage(50, 2, 3)).into(),
        priorities("cluster", [[&mesh.rig.backend, &b, &c]]).into(),
    ]);
    b.fail_with(Code::Internal);
    mesh.until("an ejection", |it| kinds(it).contains(&MarkKind::Ejection)).await;
    let mut bad = eds_cluster("cluster");
    bad.eds_cluster_config = None;
    mesh.rig.plane.set(bad);
    mesh.until("an error", |it| kinds(it).contains(&MarkKind::Error)).await;
    Ok(())
}

#[tokio::test]
async fn a_reader_that_follows_gets_what_is_new() -> TestResult {
    let mesh = Measured::start().await;
    let history = mesh.until("two samples", |it| it.last_sample >= 2 && it.series.len() == 3).await;
    let new = mesh.history(&format!("?since={}", history.last_sample)).await;
    assert_eq!(new.recording, history.recording);
    let samples = usize::try_from(new.last_sample - history.last_sample)?;
    assert_eq!(new.times.len(), samples);
    assert!(new.series.iter().all(|series| series.rate.len() == samples));
    assert!(mesh.history("?only=clusters").await.series.iter().all(|series| series.endpoint.is_none()));
    assert_eq!(get(mesh.admin.address(), "?since=yesterday").await.0, 400);
    Ok(())
}

#[tokio::test]
async fn in_the_routes_of_another_server_it_begins_with_the_first_question() -> TestResult {
    let rig = Rig::start().await;
    let routes = Admin::default().client_pool(rig.pool.clone()).add_to(Routes::default());
    let server = Backend::serve("mine", routes).await?;
    let first = history(server.address(), "").await;
    assert_eq!((first.last_sample, first.times.len()), (0, 0));
    let sampled = async {
        loop {
            let next = history(server.address(), "").await;
            if next.last_sample >= 2 {
                return next;
            }
        }
    };
    let next = tokio::time::timeout(PATIENCE, sampled).await?;
    assert_eq!(next.recording, first.recording);
    Ok(())
}
