//! The `tracing` events in the sources of the libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The crates that a program links.
const LIBRARIES: [&str; 9] =
    ["sans-io", "xds", "balancer", "mesh", "transport", "tls", "proxyless", "admin", "otel"];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// An event; displayed as a row of a table.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    target: String,
    /// The position in [`LEVELS`].
    level: usize,
    message: String,
    fields: Vec<String>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, level, message, fields } = self;
        let fields: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
        let message = message.replace('|', "\\|");
        writeln!(f, "| `{target}` | {} | {message} | {} |", LEVELS[*level], fields.join(", "))
    }
}

/// The events of all libraries, by target and level.
pub(crate) fn of_libraries(root: &Path) -> BTreeSet<Event> {
    let mut events = BTreeSet::new();
    for library in LIBRARIES {
        let folder = root.join("crates").join(library).join("src");
        let mut sources = Vec::new();
        sources_in(&folder, &mut sources);
        let constants: BTreeMap<_, _> = sources.iter().flat_map(|source| constants(source)).collect();
        let default = format!("proxyless_{}", library.replace('-', "_"));
        let default = if library == "proxyless" { "proxyless".to_owned() } else { default };
        for source in &sources {
            // A span would need a row of its own.
            assert!(!source.contains("_span!("), "{library} has a span, which the table does not know");
            events.extend(events_in(source, &default, &constants));
        }
    }
    events
}

fn sources_in(folder: &Path, sources: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.map(|entry| entry.expect("a readable folder").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if entry.is_dir() && name != "tests" {
            sources_in(&entry, sources);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let source = std::fs::read_to_string(&entry).expect("a readable file");
            let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            // Examples in docs are not events.
            let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            sources.push(lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// `const NAME: &str = "value";`
fn constants(source: &str) -> impl Iterator<Item = (String, String)> {
    source.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once("const ")?.1.split_once(": &str = \"")?;
        Some((name.to_owned(), value.strip_suffix("\";")?.to_owned()))
    })
}

fn events_in(source: &str, default: &str, constants: &BTreeMap<String, String>) -> Vec<Event> {
    let mut events = Vec::new();
    for (level, name) in LEVELS.iter().enumerate() {
        let call = format!("{name}!(");
        for (at, _) in source.match_indices(&call) {
            let before = source[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || before == '_' {
                continue;
            }
            events.push(event(level, arguments(&source[at + call.len()..]), default, constants));
        }
    }
    events
}

/// The arguments of a call, up to its closing parenthesis.
fn arguments(source: &str) -> Vec<String> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    let mut arguments = vec![String::new()];
    for c in source.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => break,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                arguments.push(String::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().expect("there is always one").push(c);
    }
    arguments.into_iter().map(|argument| argument.trim().to_owned()).filter(|a| !a.is_empty()).collect()
}

fn event(level: usize, arguments: Vec<String>, default: &str, constants: &BTreeMap<String, String>) -> Event {
    let (mut target, mut message, mut fields) = (default.to_owned(), String::new(), Vec::new());
    for argument in arguments {
        if let Some(constant) = argument.strip_prefix("target: ") {
            let name = constant.rsplit("::").next().unwrap_or(constant);
            target = constants.get(name).unwrap_or_else(|| panic!("{constant} is not a constant")).clone();
        } else if argument.starts_with('"') {
            let text = argument.trim_matches('"');
            // A string that continues in the next line.
            let lines = text.split("\\\n").map(str::trim_start).collect::<Vec<_>>();
            message = lines.join("");
            break;
        } else {
            let name = argument.split_once(" = ").map_or(&*argument, |(name, _)| name);
            fields.push(name.trim_start_matches(['%', '?']).to_owned());
        }
    }
    Event { target, level, message, fields }
}
