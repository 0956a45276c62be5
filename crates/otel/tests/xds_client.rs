//! The metrics of the xDS client and of pick_first (gRFC A78), as OpenTelemetry's SDK exports them.

mod common;

use common::*;
use proxyless::telemetry::{Instrument, instruments};
use proxyless_testkit::CDS;
use proxyless_testkit::resources::eds_cluster;
use tonic::Code;

const LISTENER: (&str, &str) = ("grpc.xds.resource_type", "envoy.config.listener.v3.Listener");
const CLUSTER: (&str, &str) = ("grpc.xds.resource_type", "envoy.config.cluster.v3.Cluster");
const OLD: (&str, &str) = ("grpc.xds.authority", "#old");
const CONNECTED: &str = "grpc.xds_client.connected";
const RESOURCES: &str = "grpc.xds_client.resources";

fn is_here(instrument: &Instrument) -> bool {
    ["grpc.xds_client.", "grpc.lb.pick_first."].iter().any(|prefix| instrument.name.starts_with(prefix))
}

#[tokio::test]
async fn a78_every_metric_of_the_xds_client_and_of_pick_first_is_exported() -> TestResult {
    let mesh = Mesh::start().await;
    let (meters, channel) = mesh.metered();
    ask(&channel).await?;
    let exported = meters.wait("a connected client", |exported| exported.sum(CONNECTED, &[]) == 1.0).await;
    let server = &exported.family(CONNECTED).points[0].labels["grpc.xds.server"];
    assert!(server.contains(&mesh.plane.address().to_string()), "{server}");
    for kind in [LISTENER, CLUSTER] {
        assert!(exported.sum("grpc.xds_client.resource_updates_valid", &[kind]) >= 1.0, "{kind:?}");
        assert_eq!(exported.sum(RESOURCES, &[kind, OLD, ("grpc.xds.cache_state", "acked")]), 1.0, "{kind:?}");
    }
    assert_eq!(exported.sum("grpc.xds_client.resource_updates_invalid", &[]), 0.0);

    // A NACK.
    let mut invalid = eds_cluster("cluster");
    invalid.eds_cluster_config = None;
    mesh.plane.set(invalid);
    mesh.plane.wait_nack(CDS).await?;
    let cached = [CLUSTER, OLD, ("grpc.xds.cache_state", "nacked_but_cached")];
    let exported =
        meters.wait("a resource in error", |exported| exported.sum(RESOURCES, &cached) == 1.0).await;
    assert!(exported.sum("grpc.xds_client.resource_updates_invalid", &[CLUSTER]) >= 1.0);
    assert_eq!(exported.sum(RESOURCES, &[CLUSTER, ("grpc.xds.cache_state", "acked")]), 0.0);

    // The end of the management server, and of the backend.
    mesh.plane.stop().await;
    let failed = |exported: &Exported| {
        exported.sum("grpc.xds_client.server_failure", &[]) >= 1.0 && exported.sum(CONNECTED, &[]) == 0.0
    };
    meters.wait("a failed server", failed).await;
    mesh.backend.kill().await;
    assert_eq!(ask(&channel).await.unwrap_err().code(), Code::Unavailable);
    let disconnected = |exported: &Exported| {
        exported.sum("grpc.lb.pick_first.disconnections", &[]) >= 1.0
            && exported.sum("grpc.lb.pick_first.connection_attempts_failed", &[]) >= 1.0
    };
    let exported = meters.wait("the end of the connection", disconnected).await;
    assert_eq!(exported.sum("grpc.lb.pick_first.connection_attempts_succeeded", &[]), 1.0);
    for instrument in instruments::ALL.iter().filter(|instrument| is_here(instrument)) {
        exported.family(instrument.name).check(instrument, &optional_labels());
    }
    drop(channel);
    let gone = |exported: &Exported| !exported.names().contains(&CONNECTED);
    meters.wait("the end of the client", gone).await;
    Ok(())
}
