//! Typed reading of nodes: each function returns the value, or records a problem and returns `None`.

use std::str::FromStr;
use std::time::Duration;

use super::did_you_mean;
use super::node::{Entry, Node, Scalar, Value};
use super::problem::Problems;

/// The fields of a map with a fixed set of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a Node);

impl<'a> Fields<'a> {
    /// The fields, all of which must be known. Unknown ones are recorded and otherwise ignored.
    pub(crate) fn of(node: &'a Node, what: &str, known: &[&str], problems: &mut Problems) -> Option<Self> {
        for entry in map(node, what, problems)? {
            if !known.contains(&entry.key.as_str()) {
                let hint = did_you_mean(&entry.key, known.iter().copied());
                let hint = if hint.is_empty() { format!("; it has {}", known.join(", ")) } else { hint };
                problems.add(entry.key_at, format!("{what} has no field {:?}{hint}", entry.key));
            }
        }
        Some(Self(node))
    }

    /// The value of a field, unless it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Node> {
        self.0.get(name)
    }

    /// Reads a field, if it is present.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        problems: &mut Problems,
        read: impl FnOnce(&'a Node, &mut Problems) -> Option<T>,
    ) -> Option<T> {
        self.get(name).and_then(|node| read(node, problems))
    }

    /// The names of `of` that are present.
    pub(crate) fn present<'n>(&self, of: &[&'n str]) -> Vec<&'n str> {
        of.iter().copied().filter(|name| self.get(name).is_some()).collect()
    }

    /// Records a problem if several of these are present.
    pub(crate) fn at_most_one(&self, of: &[&str], problems: &mut Problems) {
        if let [first, second, ..] = self.present(of)[..] {
            let at = self.0.entry(second).map_or(self.0.at, |entry| entry.key_at);
            problems
                .add(at, format!("{second} and {first} exclude each other: set one of {}", of.join(", ")));
        }
    }

    /// Records a problem if a field is present without another one, which it belongs to.
    pub(crate) fn needs(&self, name: &str, other: &str, problems: &mut Problems) {
        if let (Some(entry), None) = (self.0.entry(name), self.get(other)) {
            problems.add(entry.key_at, format!("{name} needs {other}"));
        }
    }
}

pub(crate) fn map<'a>(node: &'a Node, what: &str, problems: &mut Problems) -> Option<&'a [Entry]> {
    match &node.value {
        Value::Map(entries) => Some(entries),
        _ => problems.fail(node.at, format!("{what} must be a map, not {}", node.kind())),
    }
}

pub(crate) fn list<'a>(node: &'a Node, what: &str, problems: &mut Problems) -> Option<&'a [Node]> {
    match &node.value {
        Value::List(items) => Some(items),
        _ => problems.fail(node.at, format!("{what} must be a list, not {}", node.kind())),
    }
}

/// A list of texts; a single text counts as a list of one.
pub(crate) fn texts<'a>(node: &'a Node, problems: &mut Problems) -> Option<Vec<&'a str>> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| text(item, problems)).collect(),
        _ => text(node, problems).map(|text| vec![text]),
    }
}

fn scalar<'a>(node: &'a Node, wanted: &str, problems: &mut Problems) -> Option<&'a Scalar> {
    match &node.value {
        Value::Scalar(scalar) if !scalar.is_null() => Some(scalar),
        _ => problems.fail(node.at, format!("must be {wanted}, not {}", node.kind())),
    }
}

/// A text that is not empty. Numbers and bools are texts too.
pub(crate) fn text<'a>(node: &'a Node, problems: &mut Problems) -> Option<&'a str> {
    match scalar(node, "a string", problems)?.text.as_str() {
        "" => problems.fail(node.at, "must not be empty"),
        text => Some(text),
    }
}

pub(crate) fn boolean(node: &Node, problems: &mut Problems) -> Option<bool> {
    let value = scalar(node, "true or false", problems)?;
    value.boolean().or_else(|| problems.fail(node.at, format!("must be true or false, not {:?}", value.text)))
}

/// A whole number in the range of its type.
pub(crate) fn whole<T: FromStr>(node: &Node, problems: &mut Problems) -> Option<T> {
    let value = scalar(node, "a whole number", problems)?;
    let wrong = || format!("must be a whole number in its range, not {:?}", value.text);
    value.text.parse().ok().or_else(|| problems.fail(node.at, wrong()))
}

/// One of these words.
pub(crate) fn word<T: Copy>(node: &Node, words: &[(&str, T)], problems: &mut Problems) -> Option<T> {
    let text = text(node, problems)?;
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = did_you_mean(text, all.iter().copied());
        problems.fail(node.at, format!("must be one of {}, not {text:?}{hint}", all.join(", ")))
    })
}

/// A duration with its unit: `250ms`, `1.5s`, `2m`, `1h`.
pub(crate) fn duration(node: &Node, problems: &mut Problems) -> Option<Duration> {
    let text = text(node, problems)?;
    parse_duration(text).or_else(|| {
        problems.fail(node.at, format!("must be a duration such as 250ms, 1.5s, 2m or 1h, not {text:?}"))
    })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at_checked(unit_at)?;
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    // The range of a protobuf duration. Microseconds are exact enough.
    if seconds > 315_576_000_000.0 {
        return None;
    }
    Duration::try_from_secs_f64(seconds).ok().map(|d| Duration::from_micros((d.as_nanos() / 1000) as u64))
}

/// A percentage in millionths: `5%`, `0.1%`.
pub(crate) fn percentage(node: &Node, problems: &mut Problems) -> Option<u32> {
    let text = text(node, problems)?;
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    match number.filter(|number| (0.0..=100.0).contains(number)) {
        Some(number) => Some((number * 10_000.0).round() as u32),
        None => problems.fail(node.at, format!("must be a percentage from 0% to 100%, not {text:?}")),
    }
}

/// A host and a port: `127.0.0.1:50051`, `[::1]:50051`, `backend.example.com:443`.
pub(crate) fn host_and_port(node: &Node, problems: &mut Problems) -> Option<(String, u16)> {
    let text = text(node, problems)?;
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let is_valid = !host.is_empty() && (inner.is_some() || !host.contains(':'));
        is_valid.then(|| port.parse().ok().map(|port| (host.to_owned(), port))).flatten()
    });
    let example = "such as 127.0.0.1:50051 or [::1]:50051";
    parts.or_else(|| {
        problems.fail(node.at, format!("must be an address with a port, {example}, not {text:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::yaml::{Syntax, documents};

    fn with<T>(text: &str, read: impl Fn(&Node, &mut Problems) -> Option<T>) -> Result<T, String> {
        let mut problems = Problems::of(&"f".into());
        let nodes = documents(text, Syntax::Yaml, &mut problems);
        let value = read(&nodes[0], &mut problems);
        let texts: Vec<String> = problems.found.iter().map(ToString::to_string).collect();
        value.ok_or(texts.join("; "))
    }

    #[test]
    fn durations_have_units() {
        for (text, millis) in [("250ms", 250), ("1.5s", 1500), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(with(text, duration), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["5", "s", "1 s", "-1s", "1d", "1.2.3s", "99999999999999h"] {
            assert!(with(text, duration).is_err_and(|error| error.contains("must be a duration")), "{text}");
        }
    }

    #[test]
    fn percentages_addresses_and_numbers_are_checked() {
        assert_eq!(with("0.1%", percentage), Ok(1000));
        assert!(with("101%", percentage).is_err());
        assert!(with("10", percentage).is_err());
        assert_eq!(with("a.b:80", host_and_port), Ok(("a.b".into(), 80)));
        assert_eq!(with("'[::1]:80'", host_and_port), Ok(("::1".into(), 80)));
        for text in ["a.b", "a:b", ":80", "::1:80", "a:70000"] {
            assert!(with(text, host_and_port).is_err(), "{text}");
        }
        assert_eq!(with("7", whole::<u32>), Ok(7));
        let error = with("-7", whole::<u32>).unwrap_err();
        assert_eq!(error, "f:1:1: must be a whole number in its range, not \"-7\"");
        assert!(with("[]", boolean).unwrap_err().contains("must be true or false, not a list"));
    }

    #[test]
    fn unknown_fields_are_all_reported_with_suggestions() {
        let known = ["endpoints", "dns"];
        let error = with("{endpoint: 1, x: 2}", |node, problems| {
            Fields::of(node, "a cluster", &known, problems)?;
            None::<()>
        });
        let expected = "f:1:2: a cluster has no field \"endpoint\"; did you mean \"endpoints\"?; \
                        f:1:15: a cluster has no field \"x\"; it has endpoints, dns";
        assert_eq!(error.unwrap_err(), expected);
    }
}
