//! Details of a policy beyond counters.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Fields;
use super::fields::Plain;

/// A detail about one subject: an ejected endpoint, a session, the load of a locality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Detail {
    /// The kind: `ejected`, `session`, `load`, `sweep`, `failover timer`.
    pub kind: String,
    /// The subject, by address or name. Empty if it is the policy itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Numbers and states, the most important first. Names of durations end in `_seconds` or `_seconds_ago`.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub fields: Fields,
}

impl Detail {
    /// A detail without fields.
    #[must_use]
    pub fn new(kind: &str, subject: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), subject: subject.into(), fields: Fields::default() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name, value);
        self
    }

    /// Adds a duration in tenths of seconds. The name ends with the unit.
    #[must_use]
    pub fn with_seconds(self, name: &str, time: Duration) -> Self {
        self.with(name, (time.as_secs_f64() * 10.0).round() / 10.0)
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        for (at, (name, value)) in self.fields.iter().enumerate() {
            let (name, unit) = if let Some(name) = name.strip_suffix("_seconds_ago") {
                (name, " s ago")
            } else if let Some(name) = name.strip_suffix("_seconds") {
                (name, " s")
            } else {
                (name, "")
            };
            let separator = if at > 0 { "," } else { ":" };
            write!(f, "{separator} {} {}{unit}", name.replace('_', " "), Plain(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_one_line_with_units_and_json() {
        let detail = Detail::new("ejected", "127.0.0.1:1")
            .with("state", "READY")
            .with("in_progress", 3)
            .with_seconds("ends_in_seconds", Duration::from_millis(1_260))
            .with_seconds("last_used_seconds_ago", Duration::from_secs(2));
        assert_eq!(
            detail.to_string(),
            "ejected 127.0.0.1:1: state READY, in progress 3, ends in 1.3 s, last used 2.0 s ago"
        );
        let text = serde_json::to_string(&detail).unwrap();
        assert_eq!(serde_json::from_str::<Detail>(&text).unwrap(), detail);
        assert_eq!(serde_json::to_string(&Detail::new("sweep", "")).unwrap(), r#"{"kind":"sweep"}"#);
    }
}
