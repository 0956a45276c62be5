//! Mesh files: from texts to the xDS resources that they describe.
//!
//! Input: files of YAML or JSON documents, in the short form ([`short`]) or with raw resources ([`raw`]), mixed freely.
//! Output: the resources with their locations, or every problem of every file.

pub(crate) mod raw;
mod short;

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::Resource as Wrapper;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use prost_reflect::{DynamicMessage, Value as Field};
use proxyless_testkit::Resource;

use crate::Messages;
use crate::file::node::{Node, Value};
use crate::file::problem::{Location, Position, Problem, Problems};
use crate::file::{read, yaml};

/// A text and its name in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file. One that ends with `.json` is read as JSON.
    pub name: Arc<str>,
    /// The content.
    pub text: String,
}

impl Source {
    /// A source with this name and content.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }
}

/// The resources of mesh files.
#[derive(Clone, Debug, Default)]
pub struct Mesh {
    /// In the order of the files.
    pub resources: Vec<MeshResource>,
}

/// A resource and the place that defines it.
#[derive(Clone, Debug)]
pub struct MeshResource {
    /// The resource, as it is sent.
    pub resource: Resource,
    /// The place of its definition.
    pub location: Location,
    /// The tree of a raw resource, to locate its fields.
    pub(crate) node: Option<Node>,
}

/// Every problem of the files; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct MeshError(pub Vec<Problem>);

const TOP_LEVEL: &[&str] = &["services", "clusters", "aggregate_lists", "resources"];

impl Mesh {
    /// Reads mesh files.
    ///
    /// # Errors
    /// If a file is not valid: all problems of all files.
    pub fn read(sources: &[Source], messages: &Messages) -> Result<Self, MeshError> {
        let mut mesh = Self::default();
        let mut found = Vec::new();
        for source in sources {
            let mut problems = Problems::of(&source.name);
            let documents = yaml::documents(&source.text, yaml::Syntax::of(&source.name), &mut problems);
            for document in &documents {
                Reader { messages, problems: &mut problems, resources: &mut mesh.resources }
                    .document(document);
            }
            // The sections of a file are not read in its order.
            problems.found.sort();
            found.append(&mut problems.found);
        }
        mesh.duplicates(&mut found);
        if found.is_empty() { Ok(mesh) } else { Err(MeshError(found)) }
    }

    fn duplicates(&self, found: &mut Vec<Problem>) {
        let mut first: BTreeMap<(&str, &str), &Location> = BTreeMap::new();
        for MeshResource { resource, location, .. } in &self.resources {
            let key = (resource.type_url(), resource.name());
            if let Some(first) = first.get(&key) {
                let kind = short_type(resource.type_url());
                let message = format!("{kind} {:?} is defined twice, first at {first}", resource.name());
                found.push(Problem { location: location.clone(), message });
            } else {
                first.insert(key, location);
            }
        }
    }
}

/// The name of a message without its package.
#[must_use]
pub fn short_type(type_url: &str) -> &str {
    type_url.rsplit('.').next().unwrap_or(type_url)
}

/// Reads one document.
struct Reader<'a> {
    messages: &'a Messages,
    problems: &'a mut Problems,
    resources: &'a mut Vec<MeshResource>,
}

impl Reader<'_> {
    fn document(&mut self, document: &Node) {
        match &document.value {
            Value::List(items) => items.iter().for_each(|item| self.raw(item)),
            Value::Map(_) if document.entry("@type").is_some() => self.raw(document),
            _ => self.short(document),
        }
    }

    fn short(&mut self, document: &Node) {
        let Some(fields) = read::Fields::of(document, "a mesh file", TOP_LEVEL, self.problems) else {
            return;
        };
        if let Some(resources) = fields.get("resources") {
            let list = read::list(resources, "resources", self.problems).unwrap_or_default();
            list.iter().for_each(|item| self.raw(item));
        }
        let sections: [(&str, short::Section); 3] = [
            ("clusters", short::cluster),
            ("aggregate_lists", short::aggregate_list),
            ("services", short::service),
        ];
        for (name, section) in sections {
            let Some(entries) = fields.get(name).and_then(|node| read::map(node, name, self.problems)) else {
                continue;
            };
            for entry in entries {
                let made = section(&entry.key, &entry.value, self.problems);
                made.into_iter().for_each(|resource| self.add(resource, entry.key_at, None));
            }
        }
    }

    fn raw(&mut self, node: &Node) {
        let Some(any) = raw::any(self.messages, node, self.problems) else { return };
        let name = self.name(&any);
        match name.filter(|(_, name)| !name.is_empty()) {
            Some((type_url, name)) => {
                self.add(Resource::raw(type_url, name, any), node.at, Some(node.clone()));
            }
            None => {
                let kind = short_type(&any.type_url);
                let hint = "wrap it in envoy.service.discovery.v3.Resource, or set its name field";
                self.problems.add(node.at, format!("the {kind} has no name: {hint}"));
            }
        }
    }

    /// The type and the name under which clients request a resource.
    fn name(&self, any: &Any) -> Option<(String, String)> {
        if short_name(&any.type_url) == Wrapper::full_name() {
            let wrapper = Wrapper::decode(&any.value[..]).ok()?;
            return Some((wrapper.resource?.type_url, wrapper.name));
        }
        let descriptor = self.messages.descriptor(short_name(&any.type_url))?;
        let message = DynamicMessage::decode(descriptor, &any.value[..]).ok()?;
        let text = |field: &str| match message.get_field_by_name(field)?.as_ref() {
            Field::String(text) => Some(text.clone()),
            _ => None,
        };
        Some((any.type_url.clone(), text("cluster_name").or_else(|| text("name"))?))
    }

    fn add(&mut self, resource: Resource, at: Position, node: Option<Node>) {
        let location = self.problems.location(at);
        self.resources.push(MeshResource { resource, location, node });
    }
}

fn short_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

#[cfg(test)]
mod tests;
