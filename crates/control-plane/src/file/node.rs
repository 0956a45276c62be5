//! The tree of a document. Scalars stay text: the reader of a node decides on the type.

use serde_json::{Map, Number, Value as Json};

use super::problem::Position;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// The text of a scalar. A plain one (without quotes) may be a number, a bool or null.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    pub(crate) plain: bool,
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Position,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn null(at: Position) -> Self {
        Self { at, value: Value::Scalar(Scalar { text: String::new(), plain: true }) }
    }

    pub(crate) fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_null(),
            Value::List(_) | Value::Map(_) => false,
        }
    }

    /// The kind of the value, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) if scalar.is_null() => "null",
            Value::Scalar(scalar) if scalar.boolean().is_some() => "a bool",
            Value::Scalar(scalar) if scalar.plain && scalar.text.parse::<f64>().is_ok() => "a number",
            Value::Scalar(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The entries of a map; empty for other values.
    pub(crate) fn entries(&self) -> &[Entry] {
        if let Value::Map(entries) = &self.value { entries } else { &[] }
    }

    /// The entry of this key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value of this key, unless it is null.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// The value as JSON.
    pub(crate) fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                let fields = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Json::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl Scalar {
    pub(crate) fn is_null(&self) -> bool {
        self.plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        match self.text.as_str() {
            "true" | "True" | "TRUE" if self.plain => Some(true),
            "false" | "False" | "FALSE" if self.plain => Some(false),
            _ => None,
        }
    }

    fn to_json(&self) -> Json {
        if self.is_null() {
            return Json::Null;
        }
        if let Some(value) = self.boolean() {
            return Json::Bool(value);
        }
        let number = || -> Option<Number> {
            if let Ok(whole) = self.text.parse::<i64>() {
                return Some(whole.into());
            }
            // Words that Rust reads as numbers, such as "infinity", are text here.
            let is_numeric = self.text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
            self.text.parse().ok().filter(|_| is_numeric).and_then(Number::from_f64)
        };
        match number().filter(|_| self.plain) {
            Some(number) => Json::Number(number),
            None => Json::String(self.text.clone()),
        }
    }
}
