//! `envoy.config.core.v3.Metadata` on the wire: reads the values in use and validates the others.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::Address;
use prost::Name;

use super::in_place::Entry;
use crate::resource::extension::message_name;
use crate::resource::protobuf::{Key, Malformed, Message, Reader};

/// The key of the metadata for load balancing.
pub(super) const LB_KEY: &str = "envoy.lb";

#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    /// `filter_metadata["envoy.lb"]["hash_key"]`, if it is a string (gRFC A76).
    hash_key: Option<&'a str>,
    /// The values of `typed_filter_metadata` whose type is registered. Boxed, because hardly any endpoint has one.
    registered: Option<Box<Registered<'a>>>,
}

/// Encoded values of the one registered type, `envoy.config.core.v3.Address` (gRFC A86), by key.
#[derive(Debug, Default)]
struct Registered<'a> {
    addresses: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Metadata<'a> {
    /// The encoded addresses in `typed_filter_metadata`, in order of their keys.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let registered = self.registered.iter().flat_map(|registered| &registered.addresses);
        registered.map(|(&key, &value)| (key, value))
    }

    /// Whether `typed_filter_metadata` has no value of a registered type.
    pub(super) fn is_without_addresses(&self) -> bool {
        self.registered.is_none()
    }

    /// `filter_metadata["envoy.lb"]["hash_key"]`, if it is a string.
    pub(super) fn hash_key(&self) -> Option<&'a str> {
        self.hash_key
    }

    /// Whether `typed_filter_metadata` has a registered value with this key.
    pub(super) fn is_registered(&self, key: &str) -> bool {
        self.registered.as_ref().is_some_and(|registered| registered.addresses.contains_key(key))
    }
}

/// `google.protobuf.Struct`.
#[derive(Default)]
struct Struct<'a> {
    hash_key: Option<&'a str>,
}

/// `google.protobuf.Value`.
#[derive(Default)]
struct Value<'a> {
    text: Option<&'a str>,
}

/// `google.protobuf.ListValue`.
#[derive(Default)]
struct ListValue;

/// `google.protobuf.Any`.
#[derive(Default)]
struct Any<'a> {
    type_url: &'a str,
    value: &'a [u8],
}

impl<'a> Message<'a> for Metadata<'a> {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => {
                let mut filter = Entry::<Struct<'_>>::default();
                from.entry(key, &mut filter)?;
                // The last of several entries with the same key replaces the others.
                if filter.key == LB_KEY {
                    self.hash_key = filter.value.hash_key;
                }
                Ok(())
            }
            2 => {
                let mut typed = Entry::<Any<'_>>::default();
                from.entry(key, &mut typed)?;
                // A86-08: other types are ignored, but also replace an earlier entry with the same key.
                if message_name(typed.value.type_url) == Address::full_name() {
                    let registered = self.registered.get_or_insert_default();
                    registered.addresses.insert(typed.key, typed.value.value);
                } else if let Some(registered) = &mut self.registered {
                    registered.addresses.remove(typed.key);
                }
                Ok(())
            }
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for Struct<'a> {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => {
                let mut field = Entry::<Value<'_>>::default();
                from.entry(key, &mut field)?;
                if field.key == "hash_key" {
                    self.hash_key = field.value.text;
                }
                Ok(())
            }
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for Value<'a> {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        // The kind is that of the last field.
        self.text = match key.number() {
            1 | 4 => from.varint(key).map(|_| None)?, // null, bool
            2 => from.fixed64(key).map(|_| None)?,
            3 => Some(from.text(key)?),
            5 => from.message(key, &mut Struct::default()).map(|()| None)?,
            6 => from.message(key, &mut ListValue).map(|()| None)?,
            _ => return from.skip(key),
        };
        Ok(())
    }
}

impl<'a> Message<'a> for ListValue {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.message(key, &mut Value::default()),
            _ => from.skip(key),
        }
    }
}

impl<'a> Message<'a> for Any<'a> {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.text(key).map(|type_url| self.type_url = type_url),
            2 => from.bytes(key).map(|value| self.value = value),
            _ => from.skip(key),
        }
    }
}
