//! The text at the start: the address, the targets, and a bootstrap to copy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use proxyless_control_plane::{Mesh, short_type};
use proxyless_testkit::{AGGREGATE, LDS};
use serde_json::{Value, json};

use super::ServeFlags;
use crate::status::table::Style;
use crate::text::safe;

pub(super) fn text(flags: &ServeFlags, address: SocketAddr, mesh: &Mesh, style: Style) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in &mesh.resources {
        *counts.entry(short_type(one.resource.type_url())).or_default() += 1;
    }
    let mut counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() {
        counts.push("no resources yet; it follows your edits".to_owned());
    }
    let paths: Vec<String> = flags.paths.iter().map(|path| path.display().to_string()).collect();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{} {} at {address}: {}",
        style.bold("serving"),
        safe(&paths.join(" ")),
        safe(&counts.join(", "))
    );
    let listeners = mesh.resources.iter().filter(|one| one.resource.type_url() == LDS);
    for listener in listeners {
        let _ = writeln!(text, "  target     xds:///{}", safe(listener.resource.name()));
    }
    let bootstrap = bootstrap(flags, address).to_string();
    let _ = writeln!(
        text,
        "  bootstrap  export GRPC_XDS_BOOTSTRAP_CONFIG='{}'",
        bootstrap.replace('\'', r"'\''")
    );
    if mesh.resources.iter().any(|one| one.resource.type_url() == AGGREGATE) {
        let _ = writeln!(text, "  gate       export GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE=true");
    }
    if flags.tls_cert.is_some() && flags.client_ca.is_some() {
        let _ =
            writeln!(text, "  replace client.pem and client.key by the certificate and key of the client");
    }
    let _ = writeln!(text, "  clients    proxyless status {}", reachable(address));
    text
}

/// An address that a client on this machine can connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip, address.port()).into()
}

fn bootstrap(flags: &ServeFlags, address: SocketAddr) -> Value {
    let creds = match &flags.tls_cert {
        None => json!({ "type": "insecure" }),
        Some(certificate) => {
            let mut config = json!({ "ca_certificate_file": absolute(certificate) });
            if let (Some(_), Value::Object(config)) = (&flags.client_ca, &mut config) {
                config.insert("certificate_file".to_owned(), json!("client.pem"));
                config.insert("private_key_file".to_owned(), json!("client.key"));
            }
            json!({ "type": "tls", "config": config })
        }
    };
    let server = json!({
        "server_uri": reachable(address).to_string(),
        "channel_creds": [creds],
        "server_features": ["xds_v3"],
    });
    json!({ "xds_servers": [server], "node": { "id": "my-client" } })
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
