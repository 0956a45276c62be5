//! The address of the proxy in the metadata of an endpoint or locality (gRFC A86).

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3 as core;

use super::in_place;
use super::metadata::Metadata;
use super::validate::ip_address;
use crate::resource::extension;
use crate::resource::field::Field;
use crate::resource::protobuf::Message;

/// A86-11: the key of the proxy's address.
const KEY: &str = "envoy.http11_proxy_transport_socket.proxy_address";

/// Validates the registered values of metadata; returns the address of the proxy, if it has one. `at` is the endpoint or
/// locality.
pub(super) fn proxy_address(at: &Field<'_>, metadata: &Metadata<'_>) -> Option<SocketAddr> {
    // A86-15: behind the gate.
    if !at.context().gates.http_connect {
        return None;
    }
    let at = at.field("metadata");
    let at = at.field("typed_filter_metadata");
    let mut proxy = None;
    // A86-08: a value of a registered type must be valid, whatever its key is.
    for (key, value) in metadata.addresses() {
        let address = address(&at.key(key), value);
        if key == KEY {
            proxy = address;
        }
    }
    proxy
}

/// A86-10: an IPv4 or IPv6 address, and a port.
fn address(at: &Field<'_>, value: &[u8]) -> Option<SocketAddr> {
    match in_place::Address::decode(value) {
        Ok(address) => ip_address(at, Some(&address)),
        // For the text of its error.
        Err(_) => extension::decode::<core::Address>(at, value).and_then(|_| at.fail("is malformed")),
    }
}
