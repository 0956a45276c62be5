//! Navigation of JSON values that tracks paths and records every problem.
//!
//! As in proto JSON, `null` counts as absent everywhere.

use serde_json::{Map, Value};

use super::error::BootstrapProblem;

/// A JSON value and its path.
#[derive(Clone)]
pub(super) struct Place<'a> {
    path: String,
    value: &'a Value,
}

/// The problems found so far.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<BootstrapProblem>);

impl Problems {
    pub(super) fn add(&mut self, path: &str, reason: impl Into<String>) {
        self.0.push(BootstrapProblem::new(path, reason));
    }

    /// Records a problem; returns `None`, the value of an invalid field.
    pub(super) fn fail<T>(&mut self, path: &str, reason: impl Into<String>) -> Option<T> {
        self.add(path, reason);
        None
    }
}

impl<'a> Place<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// The path of a field, whether it is present or not.
    pub(super) fn path_of(&self, field: &str) -> String {
        match self.path.as_str() {
            "" => field.to_owned(),
            path => format!("{path}.{field}"),
        }
    }

    pub(super) fn object(&self, problems: &mut Problems) -> Option<&'a Map<String, Value>> {
        self.typed("an object", self.value.as_object(), problems)
    }

    pub(super) fn string(&self, problems: &mut Problems) -> Option<&'a str> {
        self.typed("a string", self.value.as_str(), problems)
    }

    /// The elements of a list.
    pub(super) fn list(&self, problems: &mut Problems) -> Option<Vec<Place<'a>>> {
        let list = self.typed("a list", self.value.as_array(), problems)?;
        let element = |(i, value)| Place { path: format!("{}[{i}]", self.path), value };
        Some(list.iter().enumerate().map(element).collect())
    }

    /// The entries of an object that is used as a map.
    pub(super) fn entries(&self, problems: &mut Problems) -> Vec<(&'a str, Place<'a>)> {
        let Some(object) = self.object(problems) else { return Vec::new() };
        let entry = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Place { path: format!("{}[{key:?}]", self.path), value })
        };
        object.iter().map(entry).collect()
    }

    /// `found`, or a problem: the value has a different type.
    fn typed<T>(&self, wanted: &str, found: Option<T>, problems: &mut Problems) -> Option<T> {
        found.or_else(|| problems.fail(&self.path, format!("must be {wanted}, is {}", kind(self.value))))
    }

    /// A field, if this is an object that contains it.
    pub(super) fn field(&self, name: &str) -> Option<Place<'a>> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        Some(Place { path: self.path_of(name), value })
    }

    /// A field that may also be spelled in camelCase (A27-24).
    pub(super) fn proto_field(&self, snake: &str, camel: &str, problems: &mut Problems) -> Option<Place<'a>> {
        match (self.field(snake), self.field(camel)) {
            (Some(field), Some(_)) if snake != camel => {
                problems.add(field.path(), format!("given twice, also as {camel}"));
                Some(field)
            }
            (field, other) => field.or(other),
        }
    }

    pub(super) fn string_field(&self, name: &str, problems: &mut Problems) -> Option<String> {
        self.field(name)?.string(problems).map(str::to_owned)
    }

    /// A hint at a key that may be a misspelling of the missing `name`; empty if there is none.
    pub(super) fn misspelt(&self, name: &str) -> String {
        let keys = self.value.as_object().into_iter().flat_map(Map::keys);
        let closest = keys.filter(|key| *key != name).map(|key| (distance(key, name), key)).min();
        match closest {
            Some((0..=MAX_TYPOS, key)) => format!(" (there is {key:?}, which is not known)"),
            _ => String::new(),
        }
    }

    /// A string field that must be present and not empty.
    pub(super) fn required_string(&self, name: &str, problems: &mut Problems) -> Option<&'a str> {
        let Some(field) = self.field(name) else {
            return problems.fail(&self.path_of(name), format!("is missing{}", self.misspelt(name)));
        };
        let text = field.string(problems)?;
        if text.is_empty() { problems.fail(field.path(), "is empty") } else { Some(text) }
    }
}

/// The largest edit distance at which one key counts as a misspelling of another.
const MAX_TYPOS: usize = 2;

/// The case-insensitive edit distance of two keys.
#[allow(clippy::indexing_slicing, reason = "`row` has one more element than `b`")]
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    // The distance of the prefix of `a` read so far to each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().map(|c| c.to_ascii_lowercase()).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
