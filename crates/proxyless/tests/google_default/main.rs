//! `google_default` in `channel_creds` (gRFC A27): application default credentials from each of their sources, with a
//! control plane behind TLS. The client is a process of its own, because its sources are environment variables.

#[path = "../common/mod.rs"]
mod common;
mod servers;

use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::*;
use proxyless::XdsChannel;
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use proxyless_testkit::{Backend, ControlPlane};
use serde_json::{Value, json};
use servers::{TokenServer, tls_front};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const TOKEN: &str = "ya29.secret-of-the-test";
/// The test key of a service account, made for this test.
const KEY: &str = include_str!("test-only-key.pem");
/// The failure that the client waits for before its RPC has to succeed.
const FAILURE: &str = "PROXYLESS_TEST_FAILURE";

/// A mesh behind TLS, and a client process with application default credentials.
struct World {
    plane: ControlPlane,
    _backend: Backend,
    folder: CertificateFolder,
    home: TempDir,
    bootstrap: Value,
}

impl World {
    async fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let (ca, folder) = (Authority::new("system root"), CertificateFolder::new()?);
        folder.write_ca(&[&ca])?;
        let backend = Backend::start("a").await?;
        let plane = mesh(&[&backend]).await;
        plane.set(eds_cluster("cluster").report_load());
        let front = tls_front(plane.address(), &ca.issue(Leaf::new("plane").ip([127, 0, 0, 1]))).await;
        let bootstrap = json!({
            "xds_servers": [{
                "server_uri": front.to_string(),
                "channel_creds": [{"type": "google_default"}, {"type": "insecure"}],
            }],
        });
        Ok(Self { plane, _backend: backend, folder, home: TempDir::new()?, bootstrap })
    }

    /// Runs [`in_a_process_of_its_own`] with these variables, up to its load reports. Returns the values of
    /// `authorization` of the two streams, which are the last ones.
    async fn authorizations(
        &self,
        variables: &[(&str, &Path)],
    ) -> Result<[String; 2], Box<dyn std::error::Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--ignored", "--exact", "in_a_process_of_its_own", "--nocapture"])
            .env_remove("GOOGLE_APPLICATION_CREDENTIALS")
            .env_remove("GOOGLE_CLOUD_QUOTA_PROJECT")
            .env_remove("GRPC_XDS_BOOTSTRAP")
            .env_remove("http_proxy")
            .env_remove("HTTP_PROXY")
            .env("GRPC_XDS_BOOTSTRAP_CONFIG", self.bootstrap.to_string())
            .env("SSL_CERT_FILE", self.folder.ca_file())
            .env_remove("SSL_CERT_DIR")
            .env("HOME", self.home.path())
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdin = child.stdin.take().ok_or("no stdin")?;
        let output = tokio::spawn(child.wait_with_output());
        let reported = self.plane.wait_open_load_streams(1).await;
        stdin.write_all(b"end\n").await.ok();
        drop(stdin);
        let output = output.await??;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        reported?;
        // All logs are in the text.
        assert!(text.contains("xds_client") && !text.contains(TOKEN), "{text}");
        let headers = self.plane.stream_headers();
        let last = |method: &str| {
            let stream = headers.iter().rfind(|(path, _)| path.ends_with(method)).unwrap();
            stream.1["authorization"].to_str().unwrap().to_owned()
        };
        Ok([last("/StreamAggregatedResources"), last("/StreamLoadStats")])
    }
}

/// One RPC, over a channel with the bootstrap of the environment; then waits for a line on the standard input.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other tests, with environment variables"]
async fn in_a_process_of_its_own() -> TestResult {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE).init();
    let channel = XdsChannel::new(&format!("xds:///{SERVICE}"))?;
    if let Ok(part) = std::env::var(FAILURE) {
        let status = until_failure(&channel, &part).await;
        assert_eq!(status.code(), tonic::Code::Unavailable);
    }
    let answered = async {
        while ask(&channel).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    Ok(())
}

#[tokio::test]
async fn a27_20_tokens_of_the_metadata_server_are_sent_on_every_stream() -> TestResult {
    let world = World::new().await?;
    let metadata = TokenServer::start(TOKEN, 0).await;
    let host = metadata.address.to_string();
    let sent = world.authorizations(&[("GCE_METADATA_HOST", Path::new(&host))]).await?;
    assert_eq!(sent, [format!("Bearer {TOKEN}"), format!("Bearer {TOKEN}")]);
    let requests = metadata.requests();
    let path = "GET /computeMetadata/v1/instance/service-accounts/default/token";
    assert!(requests.iter().all(|request| request.starts_with(path)), "{requests:?}");
    // Streams share a token: it does not take a request each.
    assert!(requests.len() <= 2, "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn a27_20_the_refresh_token_of_a_user_is_exchanged() -> TestResult {
    let world = World::new().await?;
    let server = TokenServer::start(TOKEN, 0).await;
    let file = world.home.path().join(".config/gcloud/application_default_credentials.json");
    std::fs::create_dir_all(file.parent().ok_or("no folder")?)?;
    let user = json!({
        "type": "authorized_user", "client_id": "id", "client_secret": "secret", "refresh_token": "refresh-me",
        "token_uri": format!("http://{}/token", server.address),
    });
    std::fs::write(&file, user.to_string())?;
    let sent = world.authorizations(&[]).await?;
    assert_eq!(sent, [format!("Bearer {TOKEN}"), format!("Bearer {TOKEN}")]);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.contains("refresh-me")), "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn a27_20_a_service_account_signs_its_tokens() -> TestResult {
    let world = World::new().await?;
    let file = world.home.path().join("account.json");
    let account = json!({
        "type": "service_account", "project_id": "p", "private_key_id": "k", "private_key": KEY,
        "client_email": "robot@p.iam.gserviceaccount.com", "token_uri": "http://127.0.0.1:1/unused",
    });
    std::fs::write(&file, account.to_string())?;
    for value in world.authorizations(&[("GOOGLE_APPLICATION_CREDENTIALS", &file)]).await? {
        let token = value.strip_prefix("Bearer ").ok_or("not a bearer token")?;
        let claims = token.split('.').nth(1).ok_or("not a JWT")?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
        assert_eq!(claims["iss"], "robot@p.iam.gserviceaccount.com");
        assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    }
    Ok(())
}

#[tokio::test]
async fn a27_20_a_stream_without_a_token_fails_and_the_next_one_tries_again() -> TestResult {
    let world = World::new().await?;
    // 404 is a permanent error for google-cloud-auth.
    let metadata = TokenServer::start(TOKEN, 1).await;
    let host = metadata.address.to_string();
    let variables = [
        ("GCE_METADATA_HOST", Path::new(&host)),
        (FAILURE, Path::new("google_default: Request to fetch the token failed")),
    ];
    let sent = world.authorizations(&variables).await?;
    assert_eq!(sent[0], format!("Bearer {TOKEN}"));
    let ads = world.plane.stream_headers();
    assert!(ads.iter().all(|(_, headers)| headers.contains_key("authorization")), "{ads:?}");
    Ok(())
}
