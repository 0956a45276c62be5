//! What goes over TLS and what never goes without: tokens for the control plane (gRFC A97), and the scheme of requests.

mod common;
mod secure;

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::*;
use proxyless::bootstrap::{CallCreds, ChannelCreds, ServerFeatures};
use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_testkit::Backend;
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
use secure::*;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A token that is valid for an hour, in a file of the folder.
fn token(folder: &CertificateFolder) -> Result<(String, CallCreds), Box<dyn std::error::Error>> {
    let expires = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 3600;
    let payload = format!("{{\"exp\":{expires}}}");
    let parts = ["{}", &payload, "signature"].map(|part| URL_SAFE_NO_PAD.encode(part));
    let text = parts.join(".");
    folder.write(&folder.path("token"), &text)?;
    Ok((text, CallCreds::JwtTokenFile(folder.path("token"))))
}

fn channel_to(server: SocketAddr, creds: ChannelCreds, call_creds: Vec<CallCreds>) -> XdsChannel {
    let bootstrap = Bootstrap::builder()
        .server_with_creds(server.to_string(), creds, call_creds, ServerFeatures::default())
        .build()
        .unwrap();
    XdsChannel::builder(&format!("xds:///{SERVICE}"))
        .bootstrap(bootstrap)
        .client_pool(ClientPool::new())
        .build()
        .unwrap()
}

/// A front with a certificate for its address.
async fn plane_front(to: SocketAddr, ca: &Authority) -> std::io::Result<Front> {
    Front::start(to, server(&ca.issue(Leaf::new("control plane").ip([127, 0, 0, 1])), &[])).await
}

#[tokio::test]
async fn a97_11_tokens_are_on_every_stream_over_tls() -> TestResult {
    let (ca, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    plane.set(eds_cluster("cluster").report_load());
    let front = plane_front(plane.address(), &ca).await?;
    let (text, creds) = token(&folder)?;
    let channel = channel_to(front.address(), ChannelCreds::Tls(files(&folder)), vec![creds]);
    assert_eq!(ask(&channel).await?, "a");
    plane.wait_open_load_streams(1).await?;
    // Streams after the first one have it too.
    let before = plane.streams_opened();
    plane.close_streams();
    plane.wait_streams_opened(before + 1).await?;
    let expected = format!("Bearer {text}");
    let streams = plane.stream_headers();
    for method in ["/StreamAggregatedResources", "/StreamLoadStats"] {
        assert!(streams.iter().any(|(path, _)| path.ends_with(method)), "{method}");
    }
    for (path, headers) in &streams {
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, [&expected], "{path}");
    }
    assert!(streams.len() >= 3);
    Ok(())
}

#[tokio::test]
async fn a97_17_tokens_are_never_sent_without_tls() -> TestResult {
    let (_, folder) = certificates()?;
    let backend = Backend::start("a").await?;
    let plane = mesh(&[&backend]).await;
    let (text, creds) = token(&folder)?;
    let channel = channel_to(plane.address(), ChannelCreds::Insecure, vec![creds]);
    let status = until_failure(&channel, "call_creds are not sent without TLS").await;
    assert!(!status.message().contains(&text), "{status}");
    assert!(plane.stream_headers().is_empty() && plane.requests().is_empty());
    Ok(())
}

/// A server of HTTP/2 that refuses every request, and notes the scheme of each.
struct Schemes {
    address: SocketAddr,
    seen: watch::Receiver<Vec<String>>,
}

impl Schemes {
    async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, seen) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(socket).await else { return };
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        sender.send_modify(|seen| seen.extend(request.uri().scheme_str().map(str::to_owned)));
                        respond.send_reset(h2::Reason::INTERNAL_ERROR);
                    }
                });
            }
        });
        Ok(Self { address, seen })
    }

    async fn first(&self) -> String {
        let mut seen = self.seen.clone();
        let seen = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| !seen.is_empty())).await;
        seen.unwrap().unwrap()[0].clone()
    }
}

#[tokio::test]
async fn the_scheme_of_requests_says_whether_the_connection_is_secured() -> TestResult {
    let (ca, folder) = certificates()?;
    // To backends.
    for (secured, expected) in [(false, "http"), (true, "https")] {
        let schemes = Schemes::start().await?;
        let front = Front::start(schemes.address, server(&backend_identity(&ca), &[&ca])).await?;
        let plane = mesh_of(&[front.address()]).await;
        if secured {
            plane.set(tls_cluster("cluster", "certs", vec![exact(SPIFFE_ID)]));
        }
        ask(&tls_channel(&plane, files(&folder))).await.unwrap_err();
        assert_eq!(schemes.first().await, expected);
    }
    // To control planes.
    for (creds, expected) in [(ChannelCreds::Insecure, "http"), (ChannelCreds::Tls(files(&folder)), "https")]
    {
        let schemes = Schemes::start().await?;
        let front = plane_front(schemes.address, &ca).await?;
        let channel = channel_to(front.address(), creds, vec![]);
        ask(&channel).await.unwrap_err();
        assert_eq!(schemes.first().await, expected);
    }
    Ok(())
}
