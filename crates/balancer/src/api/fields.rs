//! Named values in reading order.

use std::fmt;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Named values; in JSON, an object in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Whether there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a field, or replaces the value of an existing one.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(fields: I) -> Self {
        let mut all = Self::default();
        fields.into_iter().for_each(|(name, value)| all.insert(name, value));
        all
    }
}

impl Index<&str> for Fields {
    type Output = Value;

    /// The value of this name; null if there is none, as in serde_json.
    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    fields.insert(name, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// A human-readable value: text without quotes, lists and objects without JSON's punctuation.
pub(super) struct Plain<'a>(pub(super) &'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(text),
            Value::Array(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    write!(f, "{}{}", if at > 0 { ", " } else { "" }, Plain(value))?;
                }
                f.write_str("]")
            }
            Value::Object(object) => {
                f.write_str("{")?;
                for (at, (name, value)) in object.iter().enumerate() {
                    write!(f, "{}{name}={}", if at > 0 { ", " } else { "" }, Plain(value))?;
                }
                f.write_str("}")
            }
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_is_that_of_insertion_in_json_too() {
        let mut fields = Fields::from_iter([("zone", json!("eu")), ("age", json!(3))]);
        fields.insert("zone", "us");
        let text = serde_json::to_string(&fields).unwrap();
        assert_eq!(text, r#"{"zone":"us","age":3}"#);
        assert_eq!(serde_json::from_str::<Fields>(&text).unwrap(), fields);
        assert_eq!((&fields["age"], &fields["none"]), (&json!(3), &Value::Null));
    }

    #[test]
    fn values_are_shown_without_quotes() {
        let value = json!({"a": ["x", 1], "b": true});
        assert_eq!(Plain(&value).to_string(), "{a=[x, 1], b=true}");
    }
}
