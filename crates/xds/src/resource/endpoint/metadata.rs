//! `envoy.config.core.v3.Metadata` on the wire: reads the one value in use and validates the others.

use super::in_place::Entry;
use crate::resource::protobuf::{Key, Malformed, Message, Reader};

#[derive(Debug, Default)]
pub(super) struct Metadata<'a> {
    /// `filter_metadata["envoy.lb"]["hash_key"]`, if it is a string (gRFC A76).
    pub(super) hash_key: Option<&'a str>,
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
struct Any;

impl<'a> Message<'a> for Metadata<'a> {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => {
                let mut filter = Entry::<Struct<'_>>::default();
                from.entry(key, &mut filter)?;
                // The last of several entries with the same key replaces the others.
                if filter.key == "envoy.lb" {
                    self.hash_key = filter.value.hash_key;
                }
                Ok(())
            }
            2 => from.entry(key, &mut Entry::<Any>::default()), // typed_filter_metadata
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

impl<'a> Message<'a> for Any {
    fn field(&mut self, key: Key, from: &mut Reader<'a>) -> Result<(), Malformed> {
        match key.number() {
            1 => from.text(key).map(drop),
            2 => from.bytes(key).map(drop),
            _ => from.skip(key),
        }
    }
}
