//! Compares the output of the program with a text file in `tests/snapshots`. `UPDATE_SNAPSHOTS=1` writes the files.

use std::error::Error;
use std::path::Path;
use std::process::Output;

/// A mesh file with every kind of mistake.
#[allow(dead_code, reason = "each test is its own program")]
pub(crate) const BAD_MESH: &str = r#"services:
  greeter: { cluster: greeter, timeout: soon }
  shop:
    routes:
      - { prefx: /shop., cluster: shop }
      - { prefix: /a, path: /b, clusters: { v1: many } }
      - { retry: { on: [unavailible] }, cluster: shop }
clusters:
  greeter: { endpoint: [127.0.0.1:50051] }
  named: [localhost:50051]
  both: { dns: "a:1", aggregate: [greeter] }
  policy: { endpoints: [127.0.0.1:1], policy: round_robbin }
resources:
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: raw
    type: EDZ
    eds_cluster_confg: {}
    connect_timeout: 5
  - "@type": type.googleapis.com/envoy.config.cluster.v3.Clutser
  - name: typeless
  - "@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
    clusters: [a]
"#;

/// Runs the program to its end.
pub(crate) async fn run(arguments: &[&str]) -> Result<Output, Box<dyn Error>> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proxyless"));
    command.args(arguments);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Exit code and output equal the snapshot, with the folder's name replaced.
pub(crate) fn assert(name: &str, output: &Output, folder: &Path) -> Result<(), Box<dyn Error>> {
    let clean = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*folder.to_string_lossy(), "DIR");
    let code = output.status.code().map_or("none".to_owned(), |code| code.to_string());
    let text = format!("exit code {code}\n{}{}", clean(&output.stdout), clean(&output.stderr));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/snapshots/{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &text)?;
    }
    let expected = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    assert_eq!(text, expected, "{name} (UPDATE_SNAPSHOTS=1 writes the new text)");
    Ok(())
}
