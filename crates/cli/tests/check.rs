//! `proxyless check` as a program: examples, mistakes, bootstraps, dumps and running servers.

mod snapshot;

use std::error::Error;
use std::path::Path;
use std::process::Output;

use envoy_types::pb::envoy::service::status::v3::ClientStatusRequest;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use prost::Message as _;
use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_admin::Admin;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane};

type TestResult = Result<(), Box<dyn Error>>;

async fn check(arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    snapshot::run(&[&["check"], arguments].concat()).await
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn every_example_is_accepted_without_warnings() -> TestResult {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/meshes");
    let mut count = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let output = check(&["--all-gates", "--deny-warnings", &path.to_string_lossy()]).await?;
        assert_eq!(output.status.code(), Some(0), "{}: {}", path.display(), text(&output));
        count += 1;
    }
    assert!(count >= 7, "{count} examples");
    Ok(())
}

/// Valid as a mesh file, with everything that a client rejects or that leads nowhere.
const DUBIOUS: &str = r#"services:
  greeter: { cluster: greter }
  shop:
    routes:
      - { cluster: weighted }
      - { prefix: /never.Reached/, cluster: greeter }
  splits: { routes: [{ clusters: { greeter: 100, weighted: 0 } }] }
  elsewhere: { hosts: [other.example], cluster: greeter }
clusters:
  greeter: [127.0.0.1:50051]
  weighted:
    localities:
      - { zone: a, priority: 0, endpoints: [{ address: 127.0.0.1:1, health: unhealthy }] }
      - { zone: b, priority: 2, endpoints: [127.0.0.1:2] }
  unused: { endpoints: [127.0.0.1:3] }
  loop-a: { aggregate: [loop-b, greeter] }
  loop-b: { aggregate: [loop-a, missing] }
  list: { aggregate_resource: no-list }
resources:
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: raw
    type: STRICT_DNS
    connect_timeout: 5s
    lrs_server: { ads: {} }
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: envoy-only
    type: EDS
    connect_timeout: 5s
    eds_cluster_config: { eds_config: { ads: {} } }
  - "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
    name: secret
"#;

const BOOTSTRAP: &str = r#"{
  "xds_servers": [
    { "server_uri": "", "channel_creds": [{ "type": "magic" }] }
  ],
  "nodes": { "id": "x" },
  "certificate_providers": { "a": { "plugin_name": "file_watcher", "config": { "refresh_interval": 5 } } }
}
"#;

#[tokio::test]
async fn every_violation_and_warning_is_listed_with_its_place() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("dubious.yaml"), DUBIOUS)?;
    std::fs::write(path("bad.yaml"), snapshot::BAD_MESH)?;
    std::fs::write(path("prose.txt"), "hello\n")?;
    std::fs::write(path("dump.json"), "{\"config\": [{ \"generic_xds_configs\": [{ \"nam\": \"x\" }] }]}\n")?;
    std::fs::write(path("broken.yaml"), "services:\n  a: [127.0.0.1:1\n  b: c\n")?;
    std::fs::write(path("broken.json"), "{\n  \"services\": {\n    \"a\" 1\n  }\n}\n")?;
    std::fs::write(path("bootstrap.json"), BOOTSTRAP)?;
    std::fs::write(path("good.yaml"), "services: { a: [127.0.0.1:1] }\n")?;
    std::fs::write(path("evil.yaml"), "services:\n  \"\\e[2Jx\": { cluster: \"\\e]0;y\\a\" }\n")?;
    let cases: [(&str, Vec<String>); 13] = [
        ("check-dubious", vec![path("dubious.yaml")]),
        ("check-dubious-json", vec!["--json".into(), path("dubious.yaml")]),
        ("check-bad-mesh", vec![path("bad.yaml")]),
        ("check-broken", vec![path("broken.yaml"), path("broken.json")]),
        ("check-bootstrap", vec![path("bootstrap.json")]),
        ("check-good", vec![path("good.yaml")]),
        ("check-evil", vec![path("evil.yaml")]),
        ("check-missing", vec![path("nothing.yaml")]),
        ("check-not-an-address", vec!["localhost".into()]),
        ("check-prose", vec![path("prose.txt")]),
        ("check-bad-dump", vec![path("dump.json")]),
        ("check-usage", vec![]),
        ("check-denied", vec!["--deny-warnings".into(), path("good.yaml"), path("evil.yaml")]),
    ];
    for (name, arguments) in cases {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        snapshot::assert(name, &check(&arguments).await?, folder.path())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_planes_clients_and_their_dumps_are_checked() -> TestResult {
    let backend = Backend::start("a").await?;
    let plane = ControlPlane::start().await?;
    plane.set_all([
        listener("greeter", "route").into(),
        simple_route_config("route", "cluster").into(),
        eds_cluster("cluster").into(),
        priorities("cluster", [[&backend]]).into(),
    ]);
    let address = plane.address().to_string();
    for arguments in [vec![address.as_str()], vec![&address, "--listener", "greeter"]] {
        let output = check(&arguments).await?;
        let found = text(&output);
        assert_eq!(output.status.code(), Some(0), "{found}");
        assert!(found.contains("4 ACK, 0 NACK, 0 errors, 0 warnings"), "{found}");
    }

    // A client that has rejected its cluster.
    let pool = ClientPool::new();
    let channel = XdsChannel::builder("xds:///greeter")
        .bootstrap(Bootstrap::from_json(&plane.bootstrap_json())?)
        .client_pool(pool.clone())
        .build()?;
    EchoClient::new(channel.clone()).unary(EchoRequest::new("hello")).await?;
    let mut bad = eds_cluster("cluster");
    bad.eds_cluster_config = None;
    plane.set(bad);
    plane.wait_nack(CDS).await?;
    let output = check(&[&address, "--listener", "greeter"]).await?;
    let found = text(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(found.contains("error: eds_cluster_config: must be set"), "{found}");

    let admin = Admin::default().client_pool(pool).serve(0).await?;
    let admin_address = admin.address().to_string();
    let output = check(&[&admin_address]).await?;
    let of_client = text(&output);
    assert_eq!(output.status.code(), Some(1), "{of_client}");
    assert!(of_client.contains("NACK  Cluster cluster"), "{of_client}");
    assert!(of_client.contains("the client says (version 2)"), "{of_client}");

    // The same from a dump.
    let dump = snapshot::run(&["status", &admin_address, "--json"]).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("dump.json");
    std::fs::write(&file, dump.stdout)?;
    let output = check(&[&file.to_string_lossy()]).await?;
    assert_eq!(text(&output), of_client);

    // And from a binary one, which a program wrote that called CSDS itself.
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{admin_address}"))?;
    let mut csds = ClientStatusDiscoveryServiceClient::new(endpoint.connect().await?);
    let response = csds.fetch_client_status(ClientStatusRequest::default()).await?.into_inner();
    let file = folder.path().join("dump.bin");
    std::fs::write(&file, response.encode_to_vec())?;
    let output = check(&[&file.to_string_lossy()]).await?;
    assert_eq!(text(&output), of_client);
    std::fs::write(&file, [0xff, 0xfe, 0x00])?;
    let output = check(&[&file.to_string_lossy()]).await?;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("dump.bin: is neither text nor a binary dump of CSDS"), "{said}");

    let dead = proxyless_testkit::dead_address()?.address().to_string();
    let output = check(&[&dead]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains(&format!("cannot connect to {dead}")), "{}", text(&output));
    Ok(())
}
