//! Any xDS message as JSON, with every field that its type has, through the descriptors of all types.

use std::error::Error;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage as _, Value as Field,
};
use serde_json::{Map, Value, json};

/// Made by `cargo xtask descriptors`; a test of that command fails while it is out of date.
const DESCRIPTORS: &[u8] = include_bytes!("../../descriptors.bin.gz");
/// Contents deeper than this are shown as they are encoded.
const MAX_DEPTH: usize = 64;

/// Knows all message types.
pub(super) struct Messages(DescriptorPool);

impl Messages {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(DESCRIPTORS).read_to_end(&mut bytes)?;
        Ok(Self(DescriptorPool::decode(bytes.as_slice())?))
    }

    /// A message as JSON.
    pub(super) fn json<M: Message + Name>(&self, message: &M) -> Result<Value, Box<dyn Error>> {
        let bytes = message.encode_to_vec();
        self.typed(&M::full_name(), &bytes, 0)
            .ok_or_else(|| format!("{} is not known", M::full_name()).into())
    }

    /// `None` if the type is unknown or the bytes are not of it.
    fn typed(&self, name: &str, bytes: &[u8], depth: usize) -> Option<Value> {
        let descriptor = self.0.get_message_by_name(name)?;
        let message = DynamicMessage::decode(descriptor, bytes).ok()?;
        Some(self.message(&message, depth))
    }

    fn message(&self, message: &DynamicMessage, depth: usize) -> Value {
        let descriptor = message.descriptor();
        match descriptor.full_name() {
            "google.protobuf.Any" => return self.any(message, depth),
            // Durations, timestamps, wrappers, structs: JSON has forms of its own for them.
            name if name.starts_with("google.protobuf.") => {
                return serde_json::to_value(message)
                    .unwrap_or_else(|_| json!(STANDARD.encode(message.encode_to_vec())));
            }
            _ => {}
        }
        let mut object = Map::new();
        for (field, value) in message.fields() {
            object.insert(field.name().to_owned(), self.field(&field, value, depth));
        }
        let unknown: Vec<u32> = message.unknown_fields().map(prost_reflect::UnknownField::number).collect();
        if !unknown.is_empty() {
            object.insert("@unknown_fields".to_owned(), json!(unknown));
        }
        Value::Object(object)
    }

    /// What is inside, if the type is known; else its bytes.
    fn any(&self, any: &DynamicMessage, depth: usize) -> Value {
        let type_url = any.get_field_by_name("type_url");
        let type_url = type_url.as_ref().and_then(|url| url.as_str()).unwrap_or_default().to_owned();
        let bytes = any.get_field_by_name("value");
        let bytes = bytes.as_ref().and_then(|value| value.as_bytes()).cloned().unwrap_or_default();
        let name = type_url.rsplit('/').next().unwrap_or_default();
        let inside = (depth < MAX_DEPTH).then(|| self.typed(name, &bytes, depth + 1)).flatten();
        let mut object = Map::from_iter([("@type".to_owned(), json!(type_url))]);
        match inside {
            Some(Value::Object(fields)) => object.extend(fields),
            Some(value) => drop(object.insert("value".to_owned(), value)),
            None => drop(object.insert("value".to_owned(), json!(STANDARD.encode(&bytes)))),
        }
        Value::Object(object)
    }

    fn field(&self, field: &FieldDescriptor, value: &Field, depth: usize) -> Value {
        match value {
            Field::List(list) => list.iter().map(|value| self.field(field, value, depth)).collect(),
            Field::Map(map) => {
                let value_field = match field.kind() {
                    Kind::Message(entry) => entry.get_field_by_name("value"),
                    _ => None,
                };
                let entry = |(key, value): (&MapKey, &Field)| {
                    (map_key(key), self.field(value_field.as_ref().unwrap_or(field), value, depth))
                };
                Value::Object(map.iter().map(entry).collect())
            }
            Field::Message(message) if depth < MAX_DEPTH => self.message(message, depth + 1),
            Field::Message(message) => json!(STANDARD.encode(message.encode_to_vec())),
            Field::EnumNumber(number) => match field.kind() {
                Kind::Enum(kind) => {
                    kind.get_value(*number).map_or(json!(number), |value| json!(value.name()))
                }
                _ => json!(number),
            },
            Field::Bool(value) => json!(value),
            Field::I32(value) => json!(value),
            // As protobuf's JSON has it: numbers of 64 bits would lose digits in many readers.
            Field::I64(value) => json!(value.to_string()),
            Field::U32(value) => json!(value),
            Field::U64(value) => json!(value.to_string()),
            Field::F32(value) => json!(value),
            Field::F64(value) => json!(value),
            Field::String(value) => json!(value),
            Field::Bytes(value) => json!(STANDARD.encode(value)),
        }
    }
}

fn map_key(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::google::protobuf::Any;
    use proxyless_testkit::resources::*;

    use super::*;

    fn any<M: Name>(message: &M) -> Any {
        Any { type_url: M::type_url(), value: message.encode_to_vec() }
    }

    #[test]
    fn what_is_nested_in_a_resource_is_shown() {
        let json = Messages::new().unwrap().json(&any(&listener("greeter", "route"))).unwrap();
        let text = json.to_string();
        assert_eq!(json["name"], "greeter");
        for part in ["HttpConnectionManager", r#""route_config_name":"route""#, "http.router"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let cluster = eds_cluster("c").lb_policy(ring_hash(10..=20)).max_requests(7);
        let text = Messages::new().unwrap().json(&cluster).unwrap().to_string();
        for part in [r#""type":"EDS""#, r#""minimum_ring_size":"10""#, r#""max_requests":7"#] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn an_unknown_type_is_shown_as_base64_and_an_unknown_field_by_its_number() {
        let messages = Messages::new().unwrap();
        let unknown = Any { type_url: "type.googleapis.com/acme.Filter".into(), value: vec![1, 2, 3] };
        let json = messages.json(&unknown).unwrap();
        assert_eq!(json, json!({"@type": "type.googleapis.com/acme.Filter", "value": "AQID"}));
        let mut odd = any(&eds_cluster("c"));
        odd.value.extend([0xc0, 0x3e, 0x01]);
        let json = messages.json(&odd).unwrap();
        assert_eq!((&json["name"], &json["@unknown_fields"]), (&json!("c"), &json!([1000])));
        // Garbage under a known name is not lost either.
        let garbage = Any { value: vec![0xff; 4], ..odd };
        assert_eq!(messages.json(&garbage).unwrap()["value"], "/////w==");
    }
}
