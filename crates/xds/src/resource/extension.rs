//! Extensions: messages inside `google.protobuf.Any`, possibly through a TypedStruct (gRFC A39, A52).

use std::borrow::Cow;

use envoy_types::pb::google::protobuf::{Any, Struct};
use prost::Message;

use super::field::Field;

/// The message name in a type URL: the part after the last slash.
pub(crate) fn message_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

/// An extension's type and its config.
pub(crate) struct Extension<'a> {
    /// The message name; for a TypedStruct, that of the type it represents.
    pub(crate) type_name: Cow<'a, str>,
    /// The config.
    pub(crate) config: ExtensionConfig<'a>,
}

/// The two encodings of a config.
pub(crate) enum ExtensionConfig<'a> {
    /// An encoded message.
    Encoded(&'a [u8]),
    /// The value of a TypedStruct; empty if it has none.
    Struct(Struct),
}

impl<'a> Extension<'a> {
    /// Reads the type of an extension, which must be set.
    pub(crate) fn read(at: &Field<'_>, any: Option<&'a Any>) -> Option<Self> {
        let any = at.require(any)?;
        let type_name = checked_name(at, &any.type_url)?;
        // A39, A52: both TypedStructs represent the type that they name.
        if !matches!(type_name, "xds.type.v3.TypedStruct" | "udpa.type.v1.TypedStruct") {
            return Some(Self {
                type_name: Cow::Borrowed(type_name),
                config: ExtensionConfig::Encoded(&any.value),
            });
        }
        let inner: TypedStruct = decode(at, &any.value)?;
        let type_name = checked_name(at, &inner.type_url)?.to_owned();
        let config = ExtensionConfig::Struct(inner.value.unwrap_or_default());
        Some(Self { type_name: Cow::Owned(type_name), config })
    }

    /// Decodes the config, which must not be a TypedStruct.
    pub(crate) fn decode<M: Message + Default>(&self, at: &Field<'_>) -> Option<M> {
        match self.config {
            ExtensionConfig::Encoded(value) => decode(at, value),
            ExtensionConfig::Struct(_) => {
                at.fail(format!("{} must not come as a TypedStruct", self.type_name))
            }
        }
    }
}

/// Decodes a message that is nested as bytes.
pub(crate) fn decode<M: Message + Default>(at: &Field<'_>, value: &[u8]) -> Option<M> {
    M::decode(value).map_err(|error| at.reject(format!("does not decode: {error}"))).ok()
}

fn checked_name<'t>(at: &Field<'_>, type_url: &'t str) -> Option<&'t str> {
    let name = message_name(type_url);
    if name.is_empty() || name.len() == type_url.len() {
        return at.field("type_url").fail(format!("{type_url:?} is not a type URL"));
    }
    Some(name)
}

/// `xds.type.v3.TypedStruct` and `udpa.type.v1.TypedStruct`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TypedStruct {
    /// The type that it represents.
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    /// That type's config.
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<Struct>,
}
