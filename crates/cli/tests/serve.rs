//! `proxyless serve` as a program: a channel follows the file.

mod snapshot;

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proxyless::{Bootstrap, XdsChannel};
use proxyless_testkit::Backend;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use tokio::sync::mpsc;

type TestResult = Result<(), Box<dyn Error>>;

/// The program, and the lines that it prints.
struct Serve {
    program: Child,
    lines: mpsc::UnboundedReceiver<String>,
    address: String,
    bootstrap: String,
}

impl Serve {
    async fn start(file: &Path, arguments: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut program = Command::new(env!("CARGO_BIN_EXE_proxyless"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = program.stdout.take().ok_or("stdout is piped")?;
        let (sender, lines) = mpsc::unbounded_channel();
        // Ends with the program.
        std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut serve = Self { program, lines, address: String::new(), bootstrap: String::new() };
        let line = serve.line(" at 127.0.0.1:").await?;
        let after = line.split(" at ").nth(1).ok_or("an address")?;
        serve.address = after.split(": ").next().unwrap_or_default().to_owned();
        let line = serve.line("GRPC_XDS_BOOTSTRAP_CONFIG=").await?;
        serve.bootstrap = line.split('\'').nth(1).ok_or("a quoted bootstrap")?.to_owned();
        Ok(serve)
    }

    /// The next line that contains this.
    async fn line(&mut self, part: &str) -> Result<String, Box<dyn Error>> {
        let mut seen = Vec::new();
        let search = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(part) {
                    return Ok(line);
                }
                seen.push(line);
            }
            Err(Box::<dyn Error>::from("the program ended"))
        };
        match tokio::time::timeout(Duration::from_secs(60), search).await {
            Ok(found) => found,
            Err(_) => Err(format!("waited for {part:?}; seen: {seen:#?}").into()),
        }
    }

    fn channel(&self, target: &str) -> Result<EchoClient<XdsChannel>, Box<dyn Error>> {
        let bootstrap = Bootstrap::from_json(&self.bootstrap)?;
        let channel = XdsChannel::builder(target)
            .bootstrap(bootstrap)
            .client_pool(proxyless::ClientPool::new())
            .build()?;
        Ok(EchoClient::new(channel))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

async fn backend_of(client: &mut EchoClient<XdsChannel>) -> Result<String, Box<dyn Error>> {
    Ok(client.unary(EchoRequest::new("hello")).await?.into_inner().backend)
}

/// Waits until RPCs reach this backend. None may fail meanwhile.
async fn reaches(client: &mut EchoClient<XdsChannel>, backend: &str) -> TestResult {
    let search = async {
        while backend_of(client).await? != backend {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(60), search)
        .await
        .map_err(|_| format!("no RPC reaches {backend}"))?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_follows_the_file_and_a_broken_file_changes_nothing() -> TestResult {
    let (a, b) = (Backend::start("a").await?, Backend::start("b").await?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mesh.yaml");
    std::fs::write(&file, format!("services:\n  greeter: [{}]\n", a.address()))?;
    let mut serve = Serve::start(&file, &[]).await?;
    let mut client = serve.channel("xds:///greeter")?;
    assert_eq!(backend_of(&mut client).await?, "a");
    assert!(serve.line("connected: my-client").await?.contains("127.0.0.1"));
    serve.line("ACK  my-client: ClusterLoadAssignment version 1").await?;

    // The routes move to a new cluster, and the old one disappears: no RPC fails.
    let moved =
        format!("services:\n  greeter: {{ cluster: other }}\nclusters:\n  other: [{}]\n", b.address());
    std::fs::write(&file, moved)?;
    serve.line("reloaded").await?;
    assert_eq!(serve.line("Cluster version 2").await?, "  Cluster version 2: +other -greeter");
    reaches(&mut client, "b").await?;
    serve.line("ACK  my-client: RouteConfiguration version 2").await?;

    std::fs::write(&file, "services:\n  greeter: { clusters: other }\n  x: [1.2.3.4]\n")?;
    let line = serve.line("not reloaded").await?;
    assert!(line.contains("errors; the state before stays"), "{line}");
    let line = serve.line("mesh.yaml:2:14: ").await?;
    assert!(line.contains("a service has no field \"clusters\"; did you mean \"cluster\"?"), "{line}");
    serve.line("mesh.yaml:3:7: must be an address with a port").await?;
    assert_eq!(backend_of(&mut client).await?, "b");

    // A file that is valid again, with a resource that the client rejects.
    let bad = format!(
        "services:\n  greeter: {{ cluster: other }}\nclusters:\n  other:\n    localities:\n      \
         - {{ priority: 1, endpoints: [{}] }}\n",
        a.address()
    );
    std::fs::write(&file, bad)?;
    let line = serve.line("NACK my-client: ClusterLoadAssignment").await?;
    assert!(line.contains("priorit"), "{line}");
    assert_eq!(backend_of(&mut client).await?, "b");

    // The same from elsewhere.
    let status = snapshot::run(&["status", &serve.address]).await?;
    let status = String::from_utf8(status.stdout)?;
    assert!(status.contains("node my-client") && status.contains("NACKED"), "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_is_printed_and_the_clients_are_listed() -> TestResult {
    let a = Backend::start("a").await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mesh.json");
    let mesh = serde_json::json!({
        "services": { "greeter": { "endpoints": [a.address().to_string()], "report_load": true } }
    });
    std::fs::write(&file, mesh.to_string())?;
    let mut serve = Serve::start(&file, &["--loads", "--load-interval", "1", "--watch-clients"]).await?;
    let mut client = serve.channel("xds:///greeter")?;
    assert_eq!(backend_of(&mut client).await?, "a");
    serve.line("1 client").await?;
    serve.line("Listener greeter: ACK version 1").await?;
    let line = serve.line("load my-client: greeter:").await?;
    assert!(line.contains("issued 1, succeeded 1, failed 0"), "{line}");
    drop(client);
    serve.line("disconnected: my-client").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_secures_the_streams_and_the_bootstrap_trusts_the_certificate() -> TestResult {
    use proxyless_testkit::tls::{Authority, Leaf};
    let a = Backend::start("a").await?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("mesh.yaml"), format!("services:\n  greeter: [{}]\n", a.address()))?;
    let authority = Authority::new("serve CA");
    let identity = authority.issue(Leaf::new("serve").ip([127, 0, 0, 1]));
    std::fs::write(path("server.pem"), identity.chain_pem() + &authority.pem())?;
    std::fs::write(path("server.key"), identity.key_pem())?;
    let (certificate, key) = (path("server.pem"), path("server.key"));
    let arguments = ["--tls-cert", &certificate.to_string_lossy(), "--tls-key", &key.to_string_lossy()]
        .map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let serve = Serve::start(&path("mesh.yaml"), &arguments).await?;
    assert!(serve.bootstrap.contains(r#""type":"tls""#), "{}", serve.bootstrap);
    let mut client = serve.channel("xds:///greeter")?;
    assert_eq!(backend_of(&mut client).await?, "a");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotated_certificates_are_used_and_wrong_ones_are_not() -> TestResult {
    use proxyless_testkit::tls::{Authority, Leaf};
    let a = Backend::start("a").await?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("mesh.yaml"), format!("services:\n  greeter: [{}]\n", a.address()))?;
    let (old, new) = (Authority::new("old CA"), Authority::new("new CA"));
    let leaf = || Leaf::new("serve").ip([127, 0, 0, 1]);
    let (first, second) = (old.issue(leaf()), new.issue(leaf()));
    std::fs::write(path("server.pem"), first.chain_pem())?;
    std::fs::write(path("server.key"), first.key_pem())?;
    let (certificate, key) = (path("server.pem"), path("server.key"));
    let (certificate, key) = (certificate.to_string_lossy(), key.to_string_lossy());
    let mut serve =
        Serve::start(&path("mesh.yaml"), &["--tls-cert", &certificate, "--tls-key", &key]).await?;

    // The certificate without its key, as it is in the middle of a rotation.
    std::fs::write(path("server.pem"), second.chain_pem())?;
    let line = serve.line("certificates not reloaded").await?;
    assert!(line.contains("server.key: the key does not belong to the certificate in "), "{line}");
    std::fs::write(path("server.key"), second.key_pem())?;
    serve.line("certificates reloaded: for new connections").await?;

    // A client that trusts only the new authority.
    std::fs::write(path("ca.pem"), new.pem())?;
    let mut bootstrap: serde_json::Value = serde_json::from_str(&serve.bootstrap)?;
    bootstrap["xds_servers"][0]["channel_creds"][0]["config"]["ca_certificate_file"] =
        path("ca.pem").to_string_lossy().into();
    serve.bootstrap = bootstrap.to_string();
    assert_eq!(backend_of(&mut serve.channel("xds:///greeter")?).await?, "a");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dangling_references_and_empty_files_are_served_with_a_word() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("mesh.yaml");
    std::fs::write(
        &file,
        "services:\n  greeter: { cluster: greter }\nclusters:\n  greeter: [127.0.0.1:1]\n",
    )?;
    let mut serve = Serve::start(&file, &[]).await?;
    let line = serve.line("there is no Cluster").await?;
    assert!(
        line.ends_with("mesh.yaml:2:3: warning: RouteConfiguration greeter: virtual_hosts: there is no Cluster \"greter\"; did you mean \"greeter\"?"),
        "{line}"
    );
    std::fs::write(&file, "")?;
    serve.line("reloaded").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_inputs_have_good_errors() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("empty-key.pem"), "")?;
    std::fs::write(path("good.yaml"), "services: { a: [127.0.0.1:1] }\n")?;
    std::fs::write(path("bad.yaml"), snapshot::BAD_MESH)?;
    std::fs::create_dir(path("folder"))?;
    let certificate = path("empty-key.pem");
    std::fs::write(path("syntax.yaml"), "services:\n  a: [127.0.0.1:1\n  b: c\n")?;
    std::fs::write(path("binary.yaml"), [0xff, 0xfe, 0x00])?;
    let cases: [(&str, Vec<String>); 9] = [
        ("serve-missing-file", vec![path("missing.yaml")]),
        ("serve-empty-folder", vec![path("folder")]),
        ("serve-bad-mesh", vec![path("bad.yaml")]),
        ("serve-bad-syntax", vec![path("syntax.yaml")]),
        ("serve-binary", vec![path("binary.yaml")]),
        ("serve-usage", vec![]),
        ("serve-no-key", vec!["--tls-cert".into(), certificate.clone(), path("good.yaml")]),
        ("serve-bad-address", vec!["--listen".into(), "nowhere".into(), path("good.yaml")]),
        (
            "serve-bad-certificate",
            vec![
                "--tls-cert".into(),
                certificate.clone(),
                "--tls-key".into(),
                certificate,
                path("good.yaml"),
            ],
        ),
    ];
    for (name, arguments) in cases {
        let mut all = vec!["serve"];
        if name != "serve-bad-address" {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(arguments.iter().map(String::as_str));
        snapshot::assert(name, &snapshot::run(&all).await?, folder.path())?;
    }
    Ok(())
}
