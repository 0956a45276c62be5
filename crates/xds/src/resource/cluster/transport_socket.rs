//! The `transport_socket` of a Cluster: TLS settings (gRFC A29), possibly inside the wrapper that enables HTTP CONNECT
//! (gRFC A86).

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::http_11_proxy::v3::Http11ProxyUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use prost::Name;

use super::upstream_tls::{UpstreamTls, upstream_tls};
use crate::resource::extension::Extension;
use crate::resource::field::Field;

/// A validated transport socket.
#[derive(Default)]
pub(super) struct TransportSocket {
    pub(super) tls: Option<UpstreamTls>,
    /// A86-02: whether proxies of endpoints are used.
    pub(super) http_connect: bool,
}

impl TransportSocket {
    pub(super) fn validate(at: &Field<'_>, proto: &core::TransportSocket) -> Option<Self> {
        let at_config = at.field("typed_config");
        let extension = config(&at_config, proto)?;
        // A86-01, A86-15: behind the gate; otherwise it is one of the unsupported transport sockets.
        if at.context().gates.http_connect && extension.type_name == Http11ProxyUpstreamTransport::full_name()
        {
            let wrapper: Http11ProxyUpstreamTransport = extension.decode(&at_config)?;
            // A86-03: without an inner transport socket there are no TLS settings.
            let inner = wrapper.transport_socket.as_ref();
            let tls = inner.and_then(|inner| tls(&at_config.field("transport_socket"), inner));
            return Some(Self { tls, http_connect: true });
        }
        Some(Self { tls: tls_of(at, &at_config, &extension), http_connect: false })
    }
}

/// A86-04: the inner transport socket of the wrapper follows the rules of A29.
fn tls(at: &Field<'_>, proto: &core::TransportSocket) -> Option<UpstreamTls> {
    let at_config = at.field("typed_config");
    tls_of(at, &at_config, &config(&at_config, proto)?)
}

fn tls_of(at: &Field<'_>, at_config: &Field<'_>, extension: &Extension<'_>) -> Option<UpstreamTls> {
    // A29-07, A86-05: no other transport socket is supported.
    if extension.type_name != UpstreamTlsContext::full_name() {
        return at_config.fail(format!("the transport socket {} is not supported", extension.type_name));
    }
    upstream_tls(at, at_config, extension)
}

fn config<'a>(at: &Field<'_>, proto: &'a core::TransportSocket) -> Option<Extension<'a>> {
    let config = match &proto.config_type {
        Some(ConfigType::TypedConfig(any)) => Some(any),
        _ => None,
    };
    Extension::read(at, config)
}
