//! Reads YAML or JSON into trees. Anchors, aliases and merge keys (`<<`) are resolved.

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::node::{Entry, Node, Scalar, Value};
use super::problem::{Position, Problems};

/// The maximum number of nodes of a file, aliases included: a few anchors could stand for any number of nodes.
const MAX_NODES: usize = 1_000_000;
/// The maximum nesting, for the recursion of readers.
const MAX_DEPTH: usize = 100;

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Yaml,
}

impl Syntax {
    /// The syntax of a file of this name.
    pub(crate) fn of(name: &str) -> Self {
        if name.to_ascii_lowercase().ends_with(".json") { Self::Json } else { Self::Yaml }
    }
}

/// The documents of a file. All problems are recorded; a tree with problems is not to be used.
pub(crate) fn documents(text: &str, syntax: Syntax, problems: &mut Problems) -> Vec<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if syntax == Syntax::Yaml {
        return parse(text, problems);
    }
    // JSON is YAML, but the messages of a JSON parser suit JSON better. YAML does not allow tabs everywhere.
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        let at = Position { line: error.line().max(1), column: error.column().max(1) };
        problems.add(at, format!("invalid JSON: {message}"));
        return Vec::new();
    }
    parse(&text.replace('\t', " "), problems)
}

fn parse(text: &str, problems: &mut Problems) -> Vec<Node> {
    let mut builder = Builder { documents: Vec::new(), open: Vec::new(), anchors: BTreeMap::new(), nodes: 0 };
    for event in Parser::new_from_str(text) {
        let done = match event {
            Ok((event, span)) => builder.event(event, position(&span.start), problems),
            Err(error) => {
                let (at, message) = explain(&error, &builder);
                problems.fail(at, message)
            }
        };
        if done.is_none() {
            return Vec::new();
        }
    }
    builder.documents
}

fn explain(error: &ScanError, builder: &Builder) -> (Position, String) {
    let at = position(error.marker());
    let inside = match builder.open.last() {
        Some(Open { value: Value::Map(_), at: start, .. }) => {
            format!(" (in the map that starts at {}:{})", start.line, start.column)
        }
        Some(Open { value: Value::List(_), at: start, .. }) => {
            format!(" (in the list that starts at {}:{})", start.line, start.column)
        }
        _ => String::new(),
    };
    (at, format!("invalid YAML: {}{inside}", error.info()))
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    nodes: usize,
}

/// A list or map that has not ended.
struct Open {
    at: Position,
    anchor: usize,
    value: Value,
    /// The key that waits for its value.
    key: Option<(String, Position)>,
    /// The keys that a merge brought, over which the map's own take precedence.
    merged: BTreeSet<String>,
}

impl Builder {
    /// `None` after a problem that ends the reading.
    fn event(&mut self, event: Event<'_>, at: Position, problems: &mut Problems) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let plain = style == ScalarStyle::Plain && !is_text;
                let value = Value::Scalar(Scalar { text: text.into_owned(), plain });
                self.complete(Node { at, value }, anchor, problems)
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Value::List(Vec::new()), problems),
            Event::MappingStart(anchor, _) => self.start(at, anchor, Value::Map(Vec::new()), problems),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { at, anchor, value, .. }) = self.open.pop() else { return Some(()) };
                self.complete(Node { at, value }, anchor, problems)
            }
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor) else {
                    return problems.fail(at, "the alias is inside its own anchor");
                };
                if self.open.len() + depth(node) > MAX_DEPTH {
                    return problems.fail(at, format!("more than {MAX_DEPTH} levels of lists and maps"));
                }
                self.nodes += size(node);
                let node = if self.nodes > MAX_NODES { Node::null(at) } else { node.clone() };
                self.complete(node, 0, problems)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Some(()),
        }
    }

    fn start(&mut self, at: Position, anchor: usize, value: Value, problems: &mut Problems) -> Option<()> {
        if self.open.len() == MAX_DEPTH {
            return problems.fail(at, format!("more than {MAX_DEPTH} levels of lists and maps"));
        }
        self.open.push(Open { at, anchor, value, key: None, merged: BTreeSet::new() });
        Some(())
    }

    fn complete(&mut self, node: Node, anchor: usize, problems: &mut Problems) -> Option<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return problems.fail(node.at, format!("more than {MAX_NODES} values, aliases included"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            if !node.is_null() {
                self.documents.push(node);
            }
            return Some(());
        };
        match &mut open.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match (open.key.take(), node) {
                (None, Node { at, value: Value::Scalar(scalar) }) => open.key = Some((scalar.text, at)),
                (None, node) => {
                    return problems.fail(node.at, format!("a key must be a string, not {}", node.kind()));
                }
                (Some((key, key_at)), value) => {
                    add(entries, &mut open.merged, Entry { key, key_at, value }, problems);
                }
            },
            Value::Scalar(_) => {}
        }
        Some(())
    }
}

fn add(entries: &mut Vec<Entry>, merged: &mut BTreeSet<String>, entry: Entry, problems: &mut Problems) {
    if entry.key == "<<" {
        let sources = match entry.value.value {
            Value::List(items) => items,
            value => vec![Node { at: entry.value.at, value }],
        };
        for source in sources {
            let Value::Map(more) = source.value else {
                problems.add(source.at, "<< merges maps, and this is not a map");
                continue;
            };
            for entry in more {
                if !entries.iter().any(|known| known.key == entry.key) {
                    merged.insert(entry.key.clone());
                    entries.push(entry);
                }
            }
        }
        return;
    }
    let is_merged = merged.remove(&entry.key);
    match entries.iter_mut().find(|known| known.key == entry.key) {
        Some(known) if is_merged => *known = entry,
        Some(known) => {
            let Position { line, column } = known.key_at;
            problems.add(entry.key_at, format!("{:?} is set twice, first at {line}:{column}", entry.key));
        }
        None => entries.push(entry),
    }
}

/// The number of nodes of a tree.
fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar(_) => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|entry| size(&entry.value)).sum::<usize>(),
    }
}

/// The number of levels of a tree.
fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Scalar(_) => 0,
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str, syntax: Syntax) -> (Vec<Node>, Vec<String>) {
        let mut problems = Problems::of(&"f".into());
        let nodes = documents(text, syntax, &mut problems);
        (nodes, problems.found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn values_have_types_and_positions() {
        let (nodes, problems) =
            read("a: [1, 1.5, \"1\", yes, true, ~]\nb:\n  c: x y\n---\n- z\n", Syntax::Yaml);
        assert!(problems.is_empty(), "{problems:?}");
        let expected = json!({"a": [1, 1.5, "1", "yes", true, null], "b": {"c": "x y"}});
        assert_eq!(nodes[0].to_json(), expected);
        assert_eq!(nodes[1].to_json(), json!(["z"]));
        let c = nodes[0].get("b").unwrap().entry("c").unwrap();
        assert_eq!(
            (c.key_at, c.value.at),
            (Position { line: 3, column: 3 }, Position { line: 3, column: 6 })
        );
    }

    #[test]
    fn json_with_tabs_and_escapes_is_read_and_its_errors_have_positions() {
        let (nodes, problems) = read("{\n\t\"a\": \"x\\n\\u00e9\\/\",\n\t\"b\": [\n\t\t1]}", Syntax::Json);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(nodes[0].to_json(), json!({"a": "x\né/", "b": [1]}));
        assert_eq!(nodes[0].entry("b").unwrap().key_at, Position { line: 3, column: 2 });
        let (_, problems) = read("{\n  \"a\": 1,\n  \"b\" 2\n}", Syntax::Json);
        assert_eq!(problems, ["f:3:7: invalid JSON: expected `:`"]);
    }

    #[test]
    fn merges_fill_gaps_and_duplicates_are_problems() {
        let (nodes, problems) =
            read("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {b: 4, <<: *x}", Syntax::Yaml);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(nodes[0].get("y").unwrap().to_json(), json!({"a": 1, "b": 3}));
        assert_eq!(nodes[0].get("z").unwrap().to_json(), json!({"a": 1, "b": 4}));
        let (_, problems) = read("a: 1\nb: 2\na: 3\n", Syntax::Yaml);
        assert_eq!(problems, ["f:3:1: \"a\" is set twice, first at 1:1"]);
    }

    #[test]
    fn aliases_cannot_grow_without_limit() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..20 {
            let alias = format!("*a{}", i - 1);
            text += &format!("a{i}: &a{i} [{}]\n", vec![alias; 10].join(", "));
        }
        let (_, problems) = read(&text, Syntax::Yaml);
        assert!(problems[0].contains("more than 1000000 values"), "{problems:?}");
        let mut text = "a0: &a0 [x]\n".to_owned();
        for i in 1..200 {
            text += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
        }
        let (_, problems) = read(&text, Syntax::Yaml);
        assert!(problems[0].contains("more than 100 levels"), "{problems:?}");
        let (_, problems) = read(&("[".repeat(150) + &"]".repeat(150)), Syntax::Yaml);
        assert!(problems[0].contains("more than 100 levels"), "{problems:?}");
        let (_, problems) = read("a: &a [*a]", Syntax::Yaml);
        assert!(problems[0].contains("inside its own anchor"), "{problems:?}");
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        let (_, problems) = read("a:\n  - b: [1, 2\n  - c: d\n", Syntax::Yaml);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("f:3:"), "{problems:?}");
        let (_, problems) = read("a: b: c\n", Syntax::Yaml);
        assert!(problems[0].starts_with("f:1:"), "{problems:?}");
    }
}
