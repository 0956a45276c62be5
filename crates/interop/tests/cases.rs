//! gRPC's standard interop cases through an XdsChannel, against our own server.

use proxyless::{Bootstrap, XdsChannel};
use proxyless_interop::cases::CASES;
use proxyless_interop::server::{Identity, test_routes};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane};

/// tonic's server compresses all messages of a stream or none.
const NOT_SUPPORTED: &str = "server_compressed_streaming";

#[tokio::test]
async fn every_case_passes_on_our_server() {
    let identity = Identity { server_id: "id".into(), hostname: "one".into() };
    let backend = Backend::serve("one", test_routes(identity)).await.unwrap();
    let control_plane = ControlPlane::start().await.unwrap();
    control_plane.set_all([
        listener("service", "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").into(),
        assignment("cluster", [locality("zone", [&backend])]).into(),
    ]);
    let bootstrap = Bootstrap::from_json(&control_plane.bootstrap_json()).unwrap();
    let channel = XdsChannel::builder("xds:///service").bootstrap(bootstrap).build().unwrap();
    let mut failed = Vec::new();
    for case in CASES.iter().filter(|case| case.name != NOT_SUPPORTED) {
        if let Err(failure) = case.run(&channel).await {
            failed.push(format!("{}: {failure}", case.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(CASES.iter().any(|case| case.name == NOT_SUPPORTED));
}
