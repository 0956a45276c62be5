//! The policy, which only filters endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_sans_io::Time;
use xxhash_rust::xxh64::xxh64;

use super::config::{NAME, RandomSubsettingConfig};
use crate::api::{Below, ConfigError, Cx, Endpoint, Endpoints, Group, Layer, PolicyView, Update, config_of};

/// The policy.
#[derive(Default)]
pub(super) struct RandomSubsetting {
    /// A68-03: drawn once.
    seed: Option<u64>,
    /// The numbers of endpoints before and after.
    sizes: Option<(usize, usize)>,
}

impl Layer for RandomSubsetting {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &RandomSubsettingConfig = config_of(NAME, &update.config)?;
        let seed = *self.seed.get_or_insert_with(|| cx.rng().next_u64());
        let size = usize::try_from(config.subset_size).unwrap_or(usize::MAX);
        let endpoints = subset(&update.endpoints, size, seed);
        self.sizes = Some((update.endpoints.count(), endpoints.count()));
        // A68-08: everything else is passed on as it is.
        let update = Update { config: Arc::clone(&config.child), endpoints, ..update.clone() };
        below.update(&update, self, cx)
    }

    fn describe(&self, _: Time, node: &mut PolicyView) {
        if let Some((all, used)) = self.sizes {
            node.counters.insert("endpoints".to_owned(), all as u64);
            node.counters.insert("endpoints_in_subset".to_owned(), used as u64);
        }
    }
}

/// The endpoints with the lowest hashes.
fn subset(endpoints: &Endpoints, size: usize, seed: u64) -> Endpoints {
    // A68-07: all of them if there are not more.
    if endpoints.count() <= size {
        return endpoints.clone();
    }
    let mut hashes = Vec::with_capacity(endpoints.count());
    endpoints.flatten(&mut |endpoint| hashes.push((hash(endpoint, seed), endpoint)));
    // A68-06: sorted by hash; equal ones by address, so that the order of the list does not matter.
    hashes.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.addresses.cmp(&y.addresses)));
    let chosen: BTreeSet<_> =
        hashes.into_iter().take(size).map(|(_, endpoint)| Arc::as_ptr(endpoint)).collect();
    keep(endpoints, &chosen)
}

/// A68-04, A68-05: XXH64 of the first address.
fn hash(endpoint: &Endpoint, seed: u64) -> u64 {
    let address = endpoint.addresses.first().map(ToString::to_string).unwrap_or_default();
    xxh64(address.as_bytes(), seed)
}

/// The chosen endpoints, in their order. Groups without any are left out.
fn keep(endpoints: &Endpoints, chosen: &BTreeSet<*const Endpoint>) -> Endpoints {
    match endpoints {
        Endpoints::List(list) => {
            let kept = list.iter().filter(|endpoint| chosen.contains(&Arc::as_ptr(endpoint)));
            Endpoints::List(kept.cloned().collect())
        }
        Endpoints::Groups(groups) => {
            let kept = groups
                .iter()
                .map(|group| Group { endpoints: keep(&group.endpoints, chosen), ..group.clone() });
            Endpoints::Groups(kept.filter(|group| group.endpoints.count() > 0).collect())
        }
    }
}
