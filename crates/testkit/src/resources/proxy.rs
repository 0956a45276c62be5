//! Proxies of endpoints, and the transport socket that enables them (A86).

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{Metadata, TransportSocket};
use envoy_types::pb::envoy::extensions::transport_sockets::http_11_proxy::v3::Http11ProxyUpstreamTransport;

use super::endpoint::socket_address;
use super::pack;

/// The key of a proxy's address in metadata.
const KEY: &str = "envoy.http11_proxy_transport_socket.proxy_address";

/// Sets the proxy in metadata.
pub(super) fn set_proxy(metadata: &mut Option<Metadata>, proxy: SocketAddr) {
    let address = socket_address(&proxy.ip().to_string(), proxy.port());
    metadata.get_or_insert_default().typed_filter_metadata.insert(KEY.into(), pack(&address));
}

/// Wraps a transport socket, if there is one.
pub(super) fn wrap(inner: Option<TransportSocket>) -> TransportSocket {
    let wrapper = Http11ProxyUpstreamTransport { transport_socket: inner, ..Default::default() };
    TransportSocket {
        name: "envoy.transport_sockets.http_11_proxy".into(),
        config_type: Some(ConfigType::TypedConfig(pack(&wrapper))),
    }
}
