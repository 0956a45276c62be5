//! Mutual TLS as a control plane asks for it: `cargo run -p proxyless --example mtls`.
//!
//! The bootstrap names files with the client's certificate, key and roots. The Cluster names them as the source of
//! identity and roots, and the SPIFFE id that servers must have. A backend with another identity is refused, although its
//! certificate is of the same authority, and the status of the RPC says why.

#![allow(clippy::print_stdout)]

use std::error::Error;

use proxyless::{Bootstrap, Fallback, XdsChannel, XdsCredentials};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf, ServerTls};
use proxyless_testkit::{Backend, ControlPlane};

const ORDERS: &str = "spiffe://mesh.example/ns/shop/sa/orders";
const OTHER: &str = "spiffe://mesh.example/ns/shop/sa/billing";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    mtls().await?;
    Ok(())
}

/// Returns the backend that answered, and the error of RPCs after it was replaced by one with another identity.
async fn mtls() -> Result<(String, String), Box<dyn Error>> {
    // What a certificate authority and an agent such as istio-agent do: a folder with files that rotate.
    let (ca, folder) = (Authority::new("mesh CA"), CertificateFolder::new()?);
    folder.write_ca(&[&ca])?;
    folder.write_identity(&ca.issue(Leaf::new("client").uri("spiffe://mesh.example/ns/shop/sa/web")))?;

    // Servers that require certificates of clients.
    let server = |id: &str| ServerTls::new(&ca.issue(Leaf::new("server").uri(id))).require_clients_of(&[&ca]);
    let orders = Backend::start("orders").await?.with_tls(&server(ORDERS));
    let impostor = Backend::start("impostor").await?.with_tls(&server(OTHER));

    let control_plane = ControlPlane::start().await?;
    control_plane.set_all([
        listener("orders", "orders-routes").into(),
        simple_route_config("orders-routes", "orders-cluster").into(),
        // The instance "default" of the bootstrap has the roots and the identity.
        eds_cluster("orders-cluster")
            .tls(upstream_tls("default").identity("default").server_name(ORDERS))
            .into(),
        priorities("orders-cluster", [[&orders]]).into(),
    ]);
    let channel = XdsChannel::builder("xds:///orders")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json_with("default", &folder))?)
        .credentials(XdsCredentials::Xds(Fallback::None)) // never plaintext, whatever the control plane says
        .build()?;
    let mut client = EchoClient::new(channel.clone());
    let answer = client.unary(EchoRequest::new("tea")).await?.into_inner().backend;
    println!("answered by {answer}");
    for subchannel in channel.describe().await.into_iter().flat_map(|view| view.subchannels) {
        for tls in subchannel.sockets.into_iter().filter_map(|socket| socket.tls) {
            let names = tls.remote.map(|certificate| certificate.names).unwrap_or_default();
            println!("{}, {}, server {}", tls.version, tls.cipher_suite, names.join(", "));
        }
    }

    control_plane.set(priorities("orders-cluster", [[&impostor]]));
    let refused = loop {
        match client.unary(EchoRequest::new("tea")).await {
            Ok(_) => {} // until the new endpoints have arrived
            Err(status) => break status.message().to_owned(),
        }
    };
    println!("refused: {refused}");
    Ok((answer, refused))
}

#[tokio::test]
async fn the_right_identity_is_served_and_another_refused() -> Result<(), Box<dyn Error>> {
    let (answer, refused) = mtls().await?;
    assert_eq!(answer, "orders");
    assert!(refused.contains(ORDERS) && refused.contains(OTHER), "{refused}");
    Ok(())
}
