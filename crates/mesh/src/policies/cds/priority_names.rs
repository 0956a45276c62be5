//! Stable names for the priorities of a cluster (A37-27): a priority that gets another number, or exchanges some of its
//! localities, keeps its child policy and thus its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_sans_io::Interner;
use proxyless_xds::resource::{Locality, LocalityEndpoints};

/// The names assigned by the last update.
#[derive(Default)]
pub(super) struct PriorityNames {
    given: Vec<Named>,
    next: u64,
}

struct Named {
    name: Arc<str>,
    localities: Vec<Arc<Locality>>,
}

impl PriorityNames {
    /// One name per priority. A priority takes the name of the first of its localities that had one, unless a higher
    /// priority took it; otherwise it gets a new one.
    pub(super) fn update(
        &mut self,
        priorities: &[Vec<LocalityEndpoints>],
        names: &Interner<str>,
    ) -> Vec<Arc<str>> {
        let mut free = Free::new(&self.given);
        let given: Vec<Named> = priorities
            .iter()
            .map(|localities| {
                let localities: Vec<_> =
                    localities.iter().map(|locality| Arc::clone(&locality.locality)).collect();
                let name = free.take(&localities).unwrap_or_else(|| new_name(&mut self.next, names));
                Named { name, localities }
            })
            .collect();
        self.given = given;
        self.given.iter().map(|named| Arc::clone(&named.name)).collect()
    }
}

fn new_name(next: &mut u64, names: &Interner<str>) -> Arc<str> {
    *next += 1;
    names.share(format!("priority-child-{}", *next - 1))
}

/// The names of the last update that are still free.
struct Free {
    names: BTreeSet<Arc<str>>,
    by_locality: BTreeMap<Arc<Locality>, Vec<Arc<str>>>,
    of_empty: Vec<Arc<str>>,
}

impl Free {
    fn new(given: &[Named]) -> Self {
        let mut free = Self { names: BTreeSet::new(), by_locality: BTreeMap::new(), of_empty: Vec::new() };
        for Named { name, localities } in given {
            free.names.insert(Arc::clone(name));
            for locality in localities {
                free.by_locality.entry(Arc::clone(locality)).or_default().push(Arc::clone(name));
            }
            if localities.is_empty() {
                free.of_empty.push(Arc::clone(name));
            }
        }
        free
    }

    fn take(&mut self, localities: &[Arc<Locality>]) -> Option<Arc<str>> {
        let names = &mut self.names;
        if localities.is_empty() {
            return self.of_empty.iter().find(|name| names.remove(*name)).cloned();
        }
        let mut candidates =
            localities.iter().filter_map(|locality| self.by_locality.get(locality)).flatten();
        candidates.find(|name| names.remove(*name)).cloned()
    }
}
