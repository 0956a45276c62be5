//! TLS in all views, and no secret in any of them, nor in logs. Alone in its process: the logger is that of the process.

mod common;

use std::time::Duration;

use common::*;
use http_body_util::BodyExt as _;
use proxyless::bootstrap::{
    CallCreds, CertificateFiles, ChannelCreds, IdentityFiles, RootsFile, ServerFeatures,
};
use proxyless::inspect::{ChannelView, Expiry};
use proxyless::{Bootstrap, XdsChannel};
use proxyless_testkit::LogText;
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
use tower::{Service as _, ServiceExt as _};

mod channelz {
    #![allow(unreachable_pub, unused_qualifications, missing_docs, dead_code, clippy::enum_variant_names)]
    tonic::include_proto!("grpc.channelz.v1");
}
use channelz::security::Model;
use channelz::security::tls::CipherSuite;
use channelz::*;

const ID: &str = "spiffe://mesh.example/ns/prod/sa/greeter";
/// `{"alg":"ES256"}`, `{"exp":9999999999}`, and a signature.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJleHAiOjk5OTk5OTk5OTl9.dGhlLXNlY3JldC1vZi10aGUtdG9rZW4";

async fn get(rig: &Rig, path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let uri = format!("http://{}{path}", rig.admin.address());
    let request = http::Request::get(uri).body(tonic::body::Body::empty())?;
    let response = rig.admin_channel().ready().await?.call(request).await?;
    Ok(String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?)
}

#[tokio::test]
async fn views_show_tls_and_neither_views_nor_logs_have_secrets() -> TestResult {
    let log = LogText::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_env_filter("proxyless=trace,cds_lb=trace,channel=trace,dns_resolver=trace,outlier_detection_lb=trace,priority_lb=trace,stateful_session=trace,subchannel=trace,weighted_target_lb=trace,xds_client=trace,xds_cluster_impl_lb=trace,xds_cluster_manager_lb=trace,xds_override_host_lb=trace,xds_resolver=trace,xds_wrr_locality_lb=trace").with_writer(move || writer.clone()).init();
    let mut rig = Rig::start().await;
    let ca = Authority::new("ca");
    let server = ca.issue(Leaf::new("server").uri(ID).valid(-3600, 60));
    let tls = ServerTls::new(&server).require_clients_of(&[&ca]);
    rig.backend = rig.backend.with_tls(&tls);
    let plane_identity = ca.issue(Leaf::new("plane").ip([127, 0, 0, 1]));
    rig.plane = rig.plane.with_tls(&ServerTls::new(&plane_identity).require_clients_of(&[&ca]));
    rig.plane.set(eds_cluster("cluster").tls(upstream_tls("certs").identity("certs").server_name(ID)));
    let folder = CertificateFolder::new()?;
    let me = ca.issue(Leaf::new("me"));
    folder.write_ca(&[&ca])?;
    folder.write_identity(&me)?;
    folder.write(&folder.path("token"), TOKEN)?;
    let files = CertificateFiles {
        identity: Some(IdentityFiles {
            certificate_file: folder.certificate_file(),
            private_key_file: folder.private_key_file(),
        }),
        roots: Some(RootsFile::CaCertificates(folder.ca_file())),
        refresh_interval: Duration::from_secs(1),
    };
    let token = vec![CallCreds::JwtTokenFile(folder.path("token"))];
    let creds = ChannelCreds::Tls(files.clone());
    let bootstrap = Bootstrap::builder()
        .server_with_creds(rig.plane.address().to_string(), creds, token, ServerFeatures::default())
        .certificate_provider("certs", files)
        .build()?;
    let mut shown = format!("{bootstrap:?}");
    let builder = XdsChannel::builder(&format!("xds:///{SERVICE}"));
    let channel = builder.bootstrap(bootstrap).client_pool(rig.pool.clone()).build()?;
    ask(&channel).await?;
    let (_, headers) = &rig.plane.stream_headers()[0];
    assert_eq!(headers.get("authorization").unwrap().to_str()?, format!("Bearer {TOKEN}"), "it is used");
    assert_eq!(rig.backend.calls()[0].client_certificate(), Some(&me.chain_der()[0][..]), "it is used");

    // The views have what they should.
    let json = get(&rig, "/proxyless/channels.json").await?;
    let channels: Vec<ChannelView> = serde_json::from_str(&json)?;
    let socket = channels[0].subchannels[0].sockets.first().unwrap();
    let view = socket.tls.as_ref().unwrap();
    let (remote, local) = (view.remote.as_ref().unwrap(), view.local.as_ref().unwrap());
    assert_eq!((view.version.as_str(), remote.subject.as_str()), ("TLSv1.3", "CN=server"));
    assert_eq!(remote.names, [format!("URI {ID:?}")]);
    assert_eq!((remote.expiry, local.expiry), (Expiry::Soon, Expiry::Later));
    let tree = channels[0].tree.to_string();
    let expected = format!("TLSv1.3 URI {ID:?} EXPIRING the server's certificate in ");
    assert!(tree.contains(&expected), "{tree}");
    let mut client = channelz_client::ChannelzClient::new(rig.admin_channel());
    let request = GetSocketRequest { socket_id: socket.id.try_into()?, summary: false };
    let socket = client.get_socket(request).await?.into_inner().socket.unwrap();
    let Some(Model::Tls(tls)) = socket.security.clone().unwrap().model else { panic!("{socket:?}") };
    assert_eq!(tls.remote_certificate, server.chain_der()[0]);
    assert_eq!(tls.local_certificate, me.chain_der()[0]);
    assert_eq!(tls.cipher_suite, Some(CipherSuite::StandardName(view.cipher_suite.clone())));
    assert!(view.cipher_suite.starts_with("TLS_"), "{}", view.cipher_suite);

    // Neither they nor the logs have what they should not.
    let top = client.get_top_channels(GetTopChannelsRequest::default()).await?.into_inner();
    let clients = rig.pool.clients().await;
    let views = (rig.pool.channels().await, channel.describe().await);
    shown += &format!("{:?} {socket:?} {top:?} {clients:?} {views:?} {channel:?}", rig.fetch().await);
    for path in ["/proxyless/", "/proxyless/resources.json", "/proxyless/process.json"] {
        shown += &get(&rig, path).await?;
    }
    let logged = log.text();
    assert!(logged.contains("connected"), "there are logs: {logged}");
    shown += &json;
    shown += &tree;
    shown += &logged;
    let bytes: Vec<String> = me.key_der()[36..52].iter().map(ToString::to_string).collect();
    let key = me.key_pem();
    let lines = key.lines().filter(|line| !line.starts_with('-'));
    let parts = TOKEN.split('.').skip(1);
    let without_spaces = shown.replace([' ', '\n'], "");
    for secret in lines.chain(parts).chain([bytes.join(",").as_str(), "PRIVATE KEY"]) {
        assert!(!shown.contains(secret) && !without_spaces.contains(secret), "{secret} is in {shown}");
    }
    Ok(())
}
