//! ClusterLoadAssignment read in place, borrowed from its bytes: the parts that validation needs.
//!
//! An assignment may have a hundred thousand endpoints, all of which are sent again when one of them changes. So the
//! parts that every endpoint has are read in place. Rare parts are decoded as Envoy's own messages; unused parts are
//! decoded too, because malformed bytes must be rejected anywhere.

use envoy_types::pb::envoy::config::core::v3::{EnvoyInternalAddress, Locality, Pipe};
use envoy_types::pb::envoy::config::endpoint::v3 as full;
use full::cluster_load_assignment::Policy;
use full::endpoint::HealthCheckConfig;

use super::host::Host;
use super::metadata::Metadata;
use crate::resource::protobuf::{Key, Malformed, Message, Reader};

#[derive(Debug, Default)]
pub(crate) struct ClusterLoadAssignment<'a> {
    pub(super) cluster_name: &'a str,
    pub(super) endpoints: Vec<LocalityLbEndpoints<'a>>,
    pub(super) policy: Policy,
}

#[derive(Debug, Default)]
pub(super) struct LocalityLbEndpoints<'a> {
    pub(super) locality: Option<Locality>,
    pub(super) lb_endpoints: Vec<LbEndpoint<'a>>,
    pub(super) load_balancing_weight: Option<UInt32Value>,
    pub(super) priority: u32,
    pub(super) metadata: Metadata<'a>,
}

#[derive(Debug, Default)]
pub(super) struct LbEndpoint<'a> {
    /// Also `None` if the host is a name.
    pub(super) endpoint: Option<Endpoint<'a>>,
    pub(super) health_status: i32,
    pub(super) metadata: Metadata<'a>,
    pub(super) load_balancing_weight: Option<UInt32Value>,
}

#[derive(Debug, Default)]
pub(super) struct Endpoint<'a> {
    pub(super) address: Option<Address<'a>>,
    pub(super) hostname: &'a str,
    pub(super) additional_addresses: Vec<AdditionalAddress<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct AdditionalAddress<'a> {
    pub(super) address: Option<Address<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct Address<'a> {
    /// Also `None` if the address is of a different kind.
    pub(super) socket_address: Option<SocketAddress<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct SocketAddress<'a> {
    pub(super) address: Host<'a>,
    /// Also `None` if the port is a name.
    pub(super) port_value: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UInt32Value {
    pub(super) value: u32,
}

impl ClusterLoadAssignment<'_> {
    /// Reads an assignment; errors are prost's.
    pub(crate) fn read(bytes: &[u8]) -> Result<ClusterLoadAssignment<'_>, String> {
        ClusterLoadAssignment::decode(bytes).map_err(|Malformed| {
            let error = <full::ClusterLoadAssignment as prost::Message>::decode(bytes).err();
            error.map_or_else(|| "malformed".to_owned(), |error| error.to_string())
        })
    }
}

impl<'a> Message<'a> for ClusterLoadAssignment<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => self.cluster_name = from.text(key)?,
            2 => from.push(key, &mut self.endpoints)?,
            4 => from.owned(key, &mut self.policy)?,
            5 => from.entry(key, &mut Entry::<Endpoint<'_>>::default())?, // named_endpoints
            _ => from.skip(key)?,
        }
        Ok(())
    }
}

impl<'a> Message<'a> for LocalityLbEndpoints<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.owned(key, self.locality.get_or_insert_default()),
            2 => from.push(key, &mut self.lb_endpoints),
            3 => from.message(key, self.load_balancing_weight.get_or_insert_default()),
            5 => from.varint(key).map(|value| self.priority = value as u32),
            6 => from.message(key, &mut UInt32Value::default()), // proximity
            7 => from.message(key, &mut LbEndpointList),
            8 => from.unread::<full::LedsClusterLocalityConfig>(key),
            9 => from.message(key, &mut self.metadata),
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for LbEndpoint<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, self.endpoint.get_or_insert_default()),
            2 => from.varint(key).map(|value| self.health_status = value as i32),
            3 => from.message(key, &mut self.metadata),
            4 => from.message(key, self.load_balancing_weight.get_or_insert_default()),
            5 => from.text(key).map(|_| self.endpoint = None), // endpoint_name
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for Endpoint<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, self.address.get_or_insert_default()),
            2 => from.unread::<HealthCheckConfig>(key),
            3 => from.text(key).map(|hostname| self.hostname = hostname),
            4 => from.push(key, &mut self.additional_addresses),
            5 => from.text(key).map(drop), // observability_name
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for AdditionalAddress<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, self.address.get_or_insert_default()),
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for Address<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, self.socket_address.get_or_insert_default()),
            2 => from.unread::<Pipe>(key).map(|()| self.socket_address = None),
            3 => from.unread::<EnvoyInternalAddress>(key).map(|()| self.socket_address = None),
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for SocketAddress<'a> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 | 6 => from.varint(key).map(drop), // protocol, ipv4_compat
            2 => from.bytes(key).and_then(Host::read).map(|address| self.address = address),
            3 => from.varint(key).map(|port| self.port_value = Some(port as u32)),
            4 => from.text(key).map(|_| self.port_value = None), // named_port
            5 | 7 => from.text(key).map(drop),                   // resolver_name, network_namespace_filepath
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for UInt32Value {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.varint(key).map(|value| self.value = value as u32),
            _ => from.skip(key),
        }
    }
}

/// An entry of a map with string keys.
#[derive(Debug, Default)]
pub(super) struct Entry<'a, V> {
    pub(super) key: &'a str,
    pub(super) value: V,
}

impl<'a, V: Message<'a>> Message<'a> for Entry<'a, V> {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.text(key).map(|key| self.key = key),
            2 => from.message(key, &mut self.value),
            _ => from.skip(key),
        }
    }
}

/// Unused, even by Envoy.
#[derive(Default)]
struct LbEndpointList;

impl<'a> Message<'a> for LbEndpointList {
    #[inline]
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, &mut LbEndpoint::default()),
            _ => from.skip(key),
        }
    }
}
