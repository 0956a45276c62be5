//! Raw xDS resources: a node with `@type`, written as Envoy's documentation does, becomes an `Any`.
//!
//! Every field is looked up in the descriptor of its message, by its own or its JSON name. Unknown fields and values of
//! a wrong type are problems at their positions.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use envoy_types::pb::google::protobuf::Any;
use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value as Field};

use crate::Messages;
use crate::file::did_you_mean;
use crate::file::node::{Node, Value};
use crate::file::problem::{Position, Problems};
use crate::file::read;

const TYPE: &str = "@type";
/// The numbers of fields that `proxyless status` did not know.
const UNKNOWN_FIELDS: &str = "@unknown_fields";

/// The message of a node that has `@type`.
pub(crate) fn any(messages: &Messages, node: &Node, problems: &mut Problems) -> Option<Any> {
    let (type_url, message) = Raw { messages, problems }.typed(node)?;
    Some(Any { type_url, value: message.encode_to_vec() })
}

/// A node as a message of this type.
pub(crate) fn message(
    messages: &Messages,
    type_name: &str,
    node: &Node,
    problems: &mut Problems,
) -> Option<Vec<u8>> {
    let Some(descriptor) = messages.descriptor(type_name) else {
        return problems.fail(node.at, format!("{type_name} is not known"));
    };
    Some(Raw { messages, problems }.message(&descriptor, node, &[])?.encode_to_vec())
}

struct Raw<'a> {
    messages: &'a Messages,
    problems: &'a mut Problems,
}

impl Raw<'_> {
    /// The type URL and the content of an Any.
    fn typed(&mut self, node: &Node) -> Option<(String, DynamicMessage)> {
        read::map(node, "a resource", self.problems)?;
        let Some(entry) = node.entry(TYPE) else {
            return self.problems.fail(node.at, "\"@type\" is missing, such as type.googleapis.com/...");
        };
        let type_url = read::text(&entry.value, self.problems)?;
        let name = type_url.rsplit('/').next().unwrap_or_default();
        let Some(descriptor) = self.messages.descriptor(name) else {
            let known = self.messages.names();
            let hint = did_you_mean(name, known.iter().map(String::as_str));
            return self.problems.fail(entry.value.at, format!("{name:?} is not a known type{hint}"));
        };
        if !type_url.contains('/') {
            let message = format!("a type URL has a prefix: type.googleapis.com/{name}");
            return self.problems.fail(entry.value.at, message);
        }
        let message = if is_special(&descriptor) {
            // Messages with a JSON form of their own are in the field `value`.
            match node.get("value") {
                Some(value) => self.message(&descriptor, value, &[])?,
                None => DynamicMessage::new(descriptor),
            }
        } else {
            self.message(&descriptor, node, &[TYPE])?
        };
        Some((type_url.to_owned(), message))
    }

    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        node: &Node,
        ignored: &[&str],
    ) -> Option<DynamicMessage> {
        let mut message = DynamicMessage::new(descriptor.clone());
        if descriptor.full_name() == "google.protobuf.Any" {
            let (type_url, content) = self.typed(node)?;
            message.set_field_by_name("type_url", Field::String(type_url));
            message.set_field_by_name("value", Field::Bytes(content.encode_to_vec().into()));
            return Some(message);
        }
        if is_special(descriptor) {
            // Durations, timestamps, wrappers, structs.
            let json = node.to_json();
            return DynamicMessage::deserialize(descriptor.clone(), json).map_err(drop).ok().or_else(|| {
                self.problems.fail(node.at, format!("must be {}, not {}", special(descriptor), shown(node)))
            });
        }
        let entries = read::map(node, descriptor.name(), self.problems)?;
        let mut is_valid = true;
        let is_read = |key: &str| !ignored.contains(&key) && key != UNKNOWN_FIELDS;
        for entry in entries.iter().filter(|entry| is_read(&entry.key)) {
            let field = descriptor
                .get_field_by_name(&entry.key)
                .or_else(|| descriptor.get_field_by_json_name(&entry.key));
            let Some(field) = field else {
                self.unknown(descriptor, &entry.key, entry.key_at);
                is_valid = false;
                continue;
            };
            if entry.value.is_null() && !is_value(&field) {
                continue;
            }
            if let Some(set) = field
                .containing_oneof()
                .and_then(|oneof| oneof.fields().find(|other| *other != field && message.has_field(other)))
            {
                let text = format!("{} and {} exclude each other", field.name(), set.name());
                self.problems.add(entry.key_at, text);
                is_valid = false;
            }
            if message.has_field(&field) && !field.is_list() && !field.is_map() {
                self.problems.add(entry.key_at, format!("{} is set twice", field.name()));
            }
            match self.field(&field, &entry.value) {
                Some(value) => message.set_field(&field, value),
                None => is_valid = false,
            }
        }
        is_valid.then_some(message)
    }

    fn unknown(&mut self, descriptor: &MessageDescriptor, key: &str, at: Position) {
        let names: Vec<String> = descriptor.fields().map(|field| field.name().to_owned()).collect();
        let hint = did_you_mean(key, names.iter().map(String::as_str));
        let hint = match hint.as_str() {
            "" if names.is_empty() => "; it has no fields".to_owned(),
            "" if names.len() <= 8 => format!("; it has {}", names.join(", ")),
            hint => hint.to_owned(),
        };
        self.problems.add(at, format!("{} has no field {key:?}{hint}", descriptor.full_name()));
    }

    fn field(&mut self, field: &FieldDescriptor, node: &Node) -> Option<Field> {
        if field.is_map() {
            return self.map(field, node);
        }
        if field.is_list() {
            let items = read::list(node, field.name(), self.problems)?;
            let values: Vec<Option<Field>> = items.iter().map(|item| self.single(field, item)).collect();
            return values.into_iter().collect::<Option<Vec<_>>>().map(Field::List);
        }
        self.single(field, node)
    }

    fn map(&mut self, field: &FieldDescriptor, node: &Node) -> Option<Field> {
        let Kind::Message(entry_type) = field.kind() else { return None };
        let (key_field, value_field) = (entry_type.map_entry_key_field(), entry_type.map_entry_value_field());
        let mut map = std::collections::HashMap::new();
        let mut is_valid = true;
        for entry in read::map(node, field.name(), self.problems)? {
            let key = match key_field.kind() {
                Kind::String => Some(MapKey::String(entry.key.clone())),
                Kind::Bool => entry.key.parse().ok().map(MapKey::Bool),
                Kind::Uint32 | Kind::Fixed32 => entry.key.parse().ok().map(MapKey::U32),
                Kind::Uint64 | Kind::Fixed64 => entry.key.parse().ok().map(MapKey::U64),
                Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => entry.key.parse().ok().map(MapKey::I32),
                _ => entry.key.parse().ok().map(MapKey::I64),
            };
            if key.is_none() {
                self.problems.add(entry.key_at, format!("{:?} is not a key of {}", entry.key, field.name()));
            }
            match (key, self.single(&value_field, &entry.value)) {
                (Some(key), Some(value)) => drop(map.insert(key, value)),
                _ => is_valid = false,
            }
        }
        is_valid.then_some(Field::Map(map))
    }

    fn single(&mut self, field: &FieldDescriptor, node: &Node) -> Option<Field> {
        let Value::Scalar(scalar) = &node.value else {
            return match field.kind() {
                Kind::Message(descriptor) => self.message(&descriptor, node, &[]).map(Field::Message),
                kind => self.wrong(field, &wanted(&kind), node),
            };
        };
        let text = scalar.text.as_str();
        let value = match field.kind() {
            Kind::Message(descriptor) => {
                return self.message(&descriptor, node, &[]).map(Field::Message);
            }
            Kind::Enum(descriptor) => {
                let by_number = || text.parse::<i32>().ok().map(Field::EnumNumber);
                let by_name = descriptor.get_value_by_name(text);
                return by_name.map(|value| Field::EnumNumber(value.number())).or_else(by_number).or_else(
                    || {
                        let names: Vec<String> =
                            descriptor.values().map(|value| value.name().to_owned()).collect();
                        let hint = did_you_mean(text, names.iter().map(String::as_str));
                        let all = names.join(", ");
                        self.problems.fail(
                            node.at,
                            format!("{}: must be one of {all}, not {text:?}{hint}", field.name()),
                        )
                    },
                );
            }
            // Envoy's documentation writes versions and the like without quotes.
            Kind::String => Some(Field::String(text.to_owned())),
            Kind::Bytes => STANDARD
                .decode(text)
                .or_else(|_| URL_SAFE.decode(text))
                .ok()
                .map(|bytes| Field::Bytes(bytes.into())),
            Kind::Bool => scalar.boolean().map(Field::Bool),
            Kind::Double => text.parse().ok().map(Field::F64),
            Kind::Float => text.parse().ok().map(Field::F32),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => text.parse().ok().map(Field::I32),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => text.parse().ok().map(Field::I64),
            Kind::Uint32 | Kind::Fixed32 => text.parse().ok().map(Field::U32),
            Kind::Uint64 | Kind::Fixed64 => text.parse().ok().map(Field::U64),
        };
        value.or_else(|| self.wrong(field, &wanted(&field.kind()), node))
    }

    fn wrong<T>(&mut self, field: &FieldDescriptor, wanted: &str, node: &Node) -> Option<T> {
        self.problems.fail(node.at, format!("{}: must be {wanted}, not {}", field.name(), shown(node)))
    }
}

/// Whether null is a value of the field rather than its absence.
fn is_value(field: &FieldDescriptor) -> bool {
    matches!(field.kind(), Kind::Message(descriptor) if descriptor.full_name() == "google.protobuf.Value")
}

/// Whether the message has a JSON form of its own.
fn is_special(descriptor: &MessageDescriptor) -> bool {
    let wrapper = |name: &str| name.ends_with("Value");
    descriptor.full_name().strip_prefix("google.protobuf.").is_some_and(|name| {
        wrapper(name) || matches!(name, "Duration" | "Timestamp" | "Struct" | "FieldMask" | "Empty" | "Any")
    })
}

fn special(descriptor: &MessageDescriptor) -> String {
    match descriptor.name() {
        "Duration" => "a duration in seconds, such as 1.5s".into(),
        "Timestamp" => "a time, such as 2024-01-31T12:00:00Z".into(),
        "Struct" | "Empty" => "a map".into(),
        "ListValue" => "a list".into(),
        "BoolValue" => "true or false".into(),
        "StringValue" => "a string".into(),
        "UInt32Value" | "UInt64Value" => "a whole number that is not negative".into(),
        "Int32Value" | "Int64Value" => "a whole number".into(),
        "DoubleValue" | "FloatValue" => "a number".into(),
        name => format!("the JSON form of {name}"),
    }
}

fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Message(descriptor) => format!("a map with the fields of {}", descriptor.name()),
        Kind::Enum(descriptor) => format!("a value of {}", descriptor.name()),
        Kind::String => "a string".into(),
        Kind::Bytes => "bytes in base64".into(),
        Kind::Bool => "true or false".into(),
        Kind::Double | Kind::Float => "a number".into(),
        Kind::Uint32 | Kind::Uint64 | Kind::Fixed32 | Kind::Fixed64 => {
            "a whole number that is not negative".into()
        }
        _ => "a whole number".into(),
    }
}

/// The value in a message: texts as they are, everything else by its kind.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if !scalar.is_null() => format!("{:?}", scalar.text),
        _ => node.kind().to_owned(),
    }
}
