//! The resources of one moment. Immutable: a change makes a new snapshot, and streams send the difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::google::protobuf::Any;
use proxyless_testkit::{AGGREGATE, CDS, EDS, LDS, RDS, Resource};
use xxhash_rust::xxh64::xxh64;

/// Make before break: clusters and their endpoints exist before a route sends RPCs to them.
const ORDER: [&str; 5] = [CDS, EDS, AGGREGATE, LDS, RDS];

/// The resources by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    types: BTreeMap<String, TypeSnapshot>,
}

/// The resources of one type.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeSnapshot {
    /// Grows with every change of a resource of the type.
    pub(crate) version: u64,
    pub(crate) resources: BTreeMap<String, Entry>,
}

/// A resource.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Arc<Any>,
    /// Of the content: equal contents have equal hashes, also after a restart.
    pub(crate) hash: u64,
}

impl Snapshot {
    pub(crate) fn of_type(&self, type_url: &str) -> Option<&TypeSnapshot> {
        self.types.get(type_url)
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = (&String, &TypeSnapshot)> {
        self.types.iter()
    }

    /// The position of a type in the order of sending.
    pub(crate) fn rank(type_url: &str) -> usize {
        ORDER.iter().position(|known| *known == type_url).unwrap_or(ORDER.len())
    }

    /// The successor with exactly these resources. Types without a change keep their version.
    pub(crate) fn next<'a>(&self, resources: impl IntoIterator<Item = &'a Resource>) -> Self {
        let mut types: BTreeMap<String, TypeSnapshot> = BTreeMap::new();
        for resource in resources {
            let value = resource.value();
            let hash = xxh64(&value.value, xxh64(value.type_url.as_bytes(), 0));
            let entry = Entry { value: Arc::new(value.clone()), hash };
            let kind = types.entry(resource.type_url().to_owned()).or_default();
            kind.resources.insert(resource.name().to_owned(), entry);
        }
        for type_url in self.types.keys() {
            types.entry(type_url.clone()).or_default();
        }
        for (type_url, kind) in &mut types {
            kind.version = match self.of_type(type_url) {
                Some(old) if old.is_same(kind) => old.version,
                Some(old) => old.version + 1,
                None => 1,
            };
        }
        Self { types }
    }

    /// This snapshot with the resources of another one that it lacks, except for listeners: clients leave those at once.
    pub(crate) fn and_the_removed_of(&self, old: &Self) -> Self {
        let mut both = self.clone();
        for (type_url, kind) in old.types().filter(|(type_url, _)| *type_url != LDS) {
            let into = both.types.entry(type_url.clone()).or_default();
            for (name, entry) in &kind.resources {
                into.resources.entry(name.clone()).or_insert_with(|| entry.clone());
            }
            into.version = if into.is_same(kind) { kind.version } else { kind.version + 1 };
        }
        both
    }

    /// The same resources, with versions that follow those of another snapshot.
    pub(crate) fn after(mut self, old: &Self) -> Self {
        for (type_url, kind) in &mut self.types {
            if let Some(old) = old.of_type(type_url) {
                kind.version = if old.is_same(kind) { old.version } else { old.version + 1 };
            }
        }
        self
    }
}

impl TypeSnapshot {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.resources.len() == other.resources.len()
            && self
                .resources
                .iter()
                .all(|(name, entry)| other.resources.get(name).is_some_and(|other| other.hash == entry.hash))
    }
}
