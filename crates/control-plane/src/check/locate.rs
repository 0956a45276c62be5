//! Finds the place of a field path in the tree of a raw resource or a bootstrap.

use super::{Item, Subject};
use crate::Location;
use crate::file::node::{Node, Value};
use crate::file::problem::Position;

/// Sets the places of a subject's findings: of the field if the resource is raw, else of the resource.
pub(super) fn places(item: &Item, subject: &mut Subject) {
    let Some(location) = &item.location else { return };
    for finding in &mut subject.findings {
        let position = item.node.as_ref().map_or(location.position, |node| find(node, &finding.path));
        finding.location = Some(Location { file: location.file.clone(), position });
    }
}

/// The position of a path such as `endpoints[0].lb_endpoints`, or of its closest known ancestor.
pub(super) fn find(root: &Node, path: &str) -> Position {
    let mut node = root;
    let mut at = root.at;
    // The wrapper of a resource is not part of the path.
    if root.entry("resource").is_some_and(|inner| inner.value.entry("@type").is_some())
        && let Some(inner) = root.get("resource")
    {
        (node, at) = (inner, inner.at);
    }
    for step in steps(path) {
        let next = match (&step, &node.value) {
            (Step::Index(index), Value::List(items)) => items.get(*index).map(|item| (item.at, item)),
            (Step::Name(name), Value::Map(entries)) => {
                let same = |key: &str| key == name || snake(key) == *name;
                entries.iter().find(|entry| same(&entry.key)).map(|entry| (entry.key_at, &entry.value))
            }
            _ => None,
        };
        let Some((found, inner)) = next else { return at };
        (at, node) = (found, inner);
    }
    at
}

enum Step {
    Name(String),
    Index(usize),
}

fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            // A quoted key may contain anything but its end.
            let (text, after) = match inside.strip_prefix('"') {
                Some(quoted) => quoted.split_once("\"]").unwrap_or((quoted, "")),
                None => inside.split_once(']').unwrap_or((inside, "")),
            };
            steps.push(text.parse().map_or_else(|_| Step::Name(text.to_owned()), Step::Index));
            rest = after;
            continue;
        }
        let bare = rest.strip_prefix('.').unwrap_or(rest);
        let end = bare.find(['.', '[']).unwrap_or(bare.len());
        let (name, after) = bare.split_at(end);
        steps.push(Step::Name(name.to_owned()));
        rest = after;
        if name.is_empty() && !rest.starts_with('[') {
            break;
        }
    }
    steps
}

/// `clusterName` as `cluster_name`.
fn snake(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}
