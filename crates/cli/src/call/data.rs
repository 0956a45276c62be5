//! The requests of a call, from JSON. A value that does not fit is reported with the path of its field.

use std::error::Error;
use std::io::Read as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor};
use serde::de::IntoDeserializer as _;
use serde_json::{Map, Value};

/// Reads the requests: exactly one, unless the client streams. Without data, one empty message.
pub(super) fn requests(
    data: Option<&str>,
    method: &MethodDescriptor,
) -> Result<Vec<DynamicMessage>, Box<dyn Error>> {
    let (text, source) = match data {
        None => ("{}".to_owned(), "the request".to_owned()),
        Some("@" | "@-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
            (text, "standard input".to_owned())
        }
        Some(data) => match data.strip_prefix('@') {
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).map_err(|error| format!("data file {path}: {error}"))?;
                (text, path.to_owned())
            }
            None => (data.to_owned(), "-d".to_owned()),
        },
    };
    let requests = parse(&text, &method.input()).map_err(|why| format!("{source}: {why}"))?;
    if !method.is_client_streaming() && requests.len() != 1 {
        return Err(format!(
            "{source}: {} takes exactly one message, but there are {}",
            method.full_name(),
            requests.len()
        )
        .into());
    }
    Ok(requests)
}

fn parse(text: &str, descriptor: &MessageDescriptor) -> Result<Vec<DynamicMessage>, String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut messages = Vec::new();
    for (place, value) in values.enumerate() {
        let value = value.map_err(|error| format!("not JSON: {error}"))?;
        let which = if place == 0 { String::new() } else { format!("message {}: ", place + 1) };
        let message =
            message(descriptor, value).map_err(|problems| format!("{which}{}", problems.join("; ")))?;
        messages.push(message);
    }
    Ok(messages)
}

fn message(descriptor: &MessageDescriptor, value: Value) -> Result<DynamicMessage, Vec<String>> {
    match DynamicMessage::deserialize(descriptor.clone(), value.clone().into_deserializer()) {
        Ok(message) => Ok(message),
        Err(error) => {
            let mut problems = Vec::new();
            find(descriptor, &value, "", &mut problems);
            // The search looks at fields one by one; only the whole can have a field twice.
            if problems.is_empty() {
                problems.push(error.to_string());
            }
            Err(problems)
        }
    }
}

/// Finds every field that does not fit, by its path.
fn find(descriptor: &MessageDescriptor, value: &Value, path: &str, problems: &mut Vec<String>) {
    let fits =
        |value: &Value| DynamicMessage::deserialize(descriptor.clone(), value.clone().into_deserializer());
    let Err(error) = fits(value) else { return };
    let fields = match value {
        // Well-known types have a JSON form of their own.
        Value::Object(fields) if !descriptor.full_name().starts_with("google.protobuf.") => fields,
        _ => {
            let path = if path.is_empty() { "the message" } else { path };
            return problems.push(format!("{path}: {error} (a {} is needed)", descriptor.full_name()));
        }
    };
    for (name, value) in fields {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let known = |field: &FieldDescriptor| field.json_name() == name || field.name() == name;
        let Some(field) = descriptor.fields().find(known) else {
            let all: Vec<_> = descriptor.fields().map(|field| field.json_name().to_owned()).collect();
            let has = if all.is_empty() { "no fields".to_owned() } else { all.join(", ") };
            problems.push(format!("{path}: unknown field; {} has {has}", descriptor.full_name()));
            continue;
        };
        let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        if let Err(error) = fits(&alone) {
            let before = problems.len();
            match (field.kind(), value) {
                (Kind::Message(inner), Value::Array(items)) if field.is_list() => {
                    for (place, item) in items.iter().enumerate() {
                        find(&inner, item, &format!("{path}[{place}]"), problems);
                    }
                }
                (Kind::Message(inner), value) if !field.is_list() && !field.is_map() => {
                    find(&inner, value, &path, problems);
                }
                _ => {}
            }
            if problems.len() == before {
                problems.push(format!("{path}: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;
    use proxyless_testkit::echo::descriptor_set;

    use super::*;

    fn unary() -> MethodDescriptor {
        method("Unary")
    }

    fn method(name: &str) -> MethodDescriptor {
        let pool = DescriptorPool::decode(descriptor_set().as_slice()).unwrap();
        let service = pool.get_service_by_name("proxyless.testkit.Echo").unwrap();
        service.methods().find(|method| method.name() == name).unwrap()
    }

    fn error(data: &str) -> String {
        requests(Some(data), &unary()).unwrap_err().to_string()
    }

    #[test]
    fn a_request_is_one_message_and_a_stream_any_number() {
        assert_eq!(requests(None, &unary()).unwrap().len(), 1);
        assert_eq!(requests(Some(r#"{"message": "a"}"#), &unary()).unwrap().len(), 1);
        assert_eq!(requests(Some(r#"{"message": "a"} {} {"repeat": 2}"#), &method("Chat")).unwrap().len(), 3);
        assert_eq!(requests(Some(""), &method("Chat")).unwrap().len(), 0);
        assert_eq!(
            error("{}{}"),
            "-d: proxyless.testkit.Echo.Unary takes exactly one message, but there are 2"
        );
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_path() {
        assert_eq!(error("{"), "-d: not JSON: EOF while parsing an object at line 1 column 1");
        assert_eq!(
            error(r#"{"massage": 1, "repeat": "x"}"#),
            "-d: massage: unknown field; proxyless.testkit.EchoRequest has message, repeat; \
             repeat: invalid digit found in string"
        );
        let problem = error("[1]");
        assert!(problem.starts_with("-d: the message: "), "{problem}");
        assert!(problem.ends_with("(a proxyless.testkit.EchoRequest is needed)"), "{problem}");
    }
}
