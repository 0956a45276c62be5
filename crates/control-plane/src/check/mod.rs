//! What a gRPC client would do with resources and bootstraps.
//!
//! Input: resources, with their places if they come from files. Output: a [`Report`], which says of each resource
//! whether a client accepts it, lists every violation, and warns of what has no effect or leads nowhere. The verdicts are
//! those of the client's own validators ([`proxyless_xds::resource::decode`], [`proxyless_xds::bootstrap::Bootstrap`],
//! [`proxyless_mesh::graph`]).

mod bootstrap;
mod clusters;
mod dump;
mod ignored;
mod locate;
mod providers;
mod references;
mod report;
mod routes;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use proxyless_xds::resource::{DecodeContext, Resource, ResourceType, decode};

pub use dump::clients as check_clients;
pub use providers::{instances_of, provider_instances};
pub use report::{Finding, Report, Severity, Subject, Verdict};
pub use sources::check_sources;

use crate::file::node::Node;
use crate::{Location, Mesh, Messages, short_type};

/// A resource to check.
#[derive(Clone, Debug)]
pub struct Item {
    /// The type of the response that would contain it.
    pub type_url: String,
    /// The name under which it is requested.
    pub name: String,
    /// The resource itself.
    pub value: Any,
    /// The place of its definition.
    pub location: Option<Location>,
    /// The tree of a raw resource.
    pub(crate) node: Option<Node>,
}

impl Item {
    /// A resource that does not come from a file.
    #[must_use]
    pub fn new(type_url: impl Into<String>, name: impl Into<String>, value: Any) -> Self {
        Self { type_url: type_url.into(), name: name.into(), value, location: None, node: None }
    }
}

impl Mesh {
    /// The resources as items to check.
    #[must_use]
    pub fn items(&self) -> Vec<Item> {
        let item = |one: &crate::MeshResource| Item {
            type_url: one.resource.type_url().to_owned(),
            name: one.resource.name().to_owned(),
            value: one.resource.value().clone(),
            location: Some(one.location.clone()),
            node: one.node.clone(),
        };
        self.resources.iter().map(item).collect()
    }
}

/// The valid resources, by type and name.
#[derive(Debug, Default)]
pub(crate) struct Valid {
    by_key: BTreeMap<(ResourceType, String), Resource>,
    /// Names that exist but are not valid, so that they are not called missing as well.
    invalid: Vec<(ResourceType, String)>,
}

impl Valid {
    fn get(&self, kind: ResourceType, name: &str) -> Option<&Resource> {
        self.by_key.get(&(kind, name.to_owned()))
    }

    fn exists(&self, kind: ResourceType, name: &str) -> bool {
        self.get(kind, name).is_some() || self.invalid.iter().any(|(of, known)| *of == kind && known == name)
    }

    fn of(&self, kind: ResourceType) -> impl Iterator<Item = (&str, &Resource)> {
        self.by_key
            .iter()
            .filter(move |((of, _), _)| *of == kind)
            .map(|((_, name), one)| (name.as_str(), one))
    }

    fn names(&self, kind: ResourceType) -> Vec<&str> {
        let invalid = self.invalid.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.as_str());
        self.of(kind).map(|(name, _)| name).chain(invalid).collect()
    }
}

/// Checks resources as one mesh: each by itself, and their references.
#[must_use]
pub fn check(items: &[Item], cx: &DecodeContext, messages: &Messages) -> Report {
    let mut report = Report::default();
    let mut valid = Valid::default();
    for item in items {
        let mut subject = Subject::new(short_type(&item.type_url), &item.name, item.location.clone());
        let Some(kind) = ResourceType::from_type_url(&item.type_url) else {
            subject.verdict = Verdict::Ignored;
            subject.warn("", "gRPC clients do not request resources of this type");
            report.subjects.push(subject);
            continue;
        };
        let decoded = decode(kind, &item.value.type_url, &item.value.value, cx);
        match decoded.resource {
            Ok(resource) => {
                ignored::warn(item, messages, &mut subject);
                clusters::warn(&resource, &mut subject);
                routes::warn(item, &resource, &mut subject);
                valid.by_key.insert((kind, item.name.clone()), resource);
            }
            Err(violations) => {
                subject.verdict = Verdict::Nack;
                for violation in &violations.first {
                    let why = with_hint(&violation.why, cx);
                    subject.reject(&violation.path, &why);
                }
                if violations.more > 0 {
                    subject.reject("", &format!("and {} more", violations.more));
                }
                valid.invalid.push((kind, item.name.clone()));
            }
        }
        locate::places(item, &mut subject);
        report.subjects.push(subject);
    }
    references::warn(&valid, &mut report);
    report
}

/// Names the gate that a violation is about.
fn with_hint(why: &str, cx: &DecodeContext) -> String {
    if why.contains("AggregateClusterResource") && !cx.gates.aggregate_cluster_resource {
        return format!(
            "{why} (unless GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE=true, or --all-gates here)"
        );
    }
    why.to_owned()
}

/// A name of a resource.
pub(crate) type Name = Arc<str>;
