//! The names in a request: listed and encoded once for all requests between two changes of subscriptions. In the state
//! of the world protocol every ACK lists all names of its type, and most of them list the same ones.

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

/// The tag of `DiscoveryRequest.resource_names`.
const RESOURCE_NAMES: u32 = 3;

/// The names in a request.
#[derive(Clone, Debug)]
pub(super) struct RequestedNames {
    /// In order.
    names: Arc<[Arc<str>]>,
    /// The field `resource_names`.
    encoded: Bytes,
    /// The revision of the subscriptions that they were listed at.
    revision: u64,
}

impl RequestedNames {
    /// Names in order, listed at this revision of the subscriptions.
    pub(super) fn new(names: Vec<Arc<str>>, revision: u64) -> Self {
        // A tag and usually one byte of length for each.
        let mut encoded = Vec::with_capacity(names.iter().map(|name| name.len() + 2).sum());
        for name in &names {
            encode_key(RESOURCE_NAMES, WireType::LengthDelimited, &mut encoded);
            encode_varint(name.len() as u64, &mut encoded);
            encoded.extend_from_slice(name.as_bytes());
        }
        Self { names: names.into(), encoded: encoded.into(), revision }
    }

    /// Whether these are the names to request at this revision.
    pub(super) fn is_current(&self, revision: u64) -> bool {
        self.revision == revision
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn contains(&self, name: &Arc<str>) -> bool {
        self.names.binary_search(name).is_ok()
    }

    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The encoded field of a request that lists these names.
    pub(super) fn encoded(&self) -> Bytes {
        self.encoded.clone()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::messages::DiscoveryRequest;
    use super::*;

    #[test]
    fn encoded_names_are_a_part_of_a_request() {
        let names = ["a".into(), "long".repeat(100).as_str().into(), "z".into()];
        let resource_names = names.iter().map(ToString::to_string).collect();
        let request = DiscoveryRequest { resource_names, ..DiscoveryRequest::default() };
        assert_eq!(RequestedNames::new(names.to_vec(), 0).encoded(), request.encode_to_vec());
    }
}
