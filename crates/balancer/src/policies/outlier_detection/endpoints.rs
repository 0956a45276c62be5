//! The endpoints that are watched: their counts, their ejections, and which address belongs to which.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::{Rng, Time};

use super::config::Detection;
use super::counter::{AddressTracker, CallCounter, Counts};
use super::ejection::{Sample, eject_outliers};
use crate::api::{CallTracker, Detail, Endpoints};
use crate::policies::petiole::EndpointKey;

/// A61: endpoints by the set of their addresses, and addresses with a pointer to their endpoint.
#[derive(Default)]
pub(super) struct Watched {
    endpoints: BTreeMap<EndpointKey, EndpointState>,
    addresses: BTreeMap<SocketAddr, Address>,
    /// How many endpoints are ejected now.
    ejected: usize,
    /// How often an endpoint was ejected so far, those that are gone included.
    ejections: u64,
}

#[derive(Default)]
struct EndpointState {
    counter: Arc<CallCounter>,
    ejection: Option<Ejection>,
    /// How many ejections in a row, as A50 counts them.
    multiplier: u32,
}

struct Ejection {
    since: Time,
    /// The calls that it was ejected for.
    counts: Counts,
}

#[derive(Default)]
struct Address {
    tracker: Arc<AddressTracker>,
    endpoint: Option<EndpointKey>,
    /// How many subchannels there are for it.
    subchannels: usize,
}

impl Watched {
    /// Watches exactly these endpoints; those that were watched before go on as they are.
    pub(super) fn watch(&mut self, endpoints: &Endpoints) {
        self.addresses.values_mut().for_each(|address| address.endpoint = None);
        let mut listed = BTreeSet::new();
        endpoints.flatten(&mut |endpoint| {
            let key = EndpointKey::of(endpoint);
            let state = self.endpoints.entry(key.clone()).or_default();
            for address in endpoint.addresses.iter() {
                let address = self.addresses.entry(*address).or_default();
                // A61: an address may come to belong to another endpoint.
                address.tracker.count_for(Some(&state.counter));
                address.endpoint = Some(key.clone());
            }
            listed.insert(key);
        });
        // A50: what is not listed any more is forgotten.
        self.endpoints.retain(|key, _| listed.contains(key));
        self.count_ejected();
        self.forget_unlisted();
    }

    /// A50: without an algorithm nothing is counted, nothing is ejected, and all multipliers are zero.
    pub(super) fn clear(&mut self) {
        self.endpoints.clear();
        self.ejected = 0;
        self.addresses.values_mut().for_each(|address| address.endpoint = None);
        self.forget_unlisted();
    }

    /// The tracker for one more subchannel of this address.
    pub(super) fn subchannel_made(&mut self, address: SocketAddr) -> Arc<dyn CallTracker> {
        let address = self.addresses.entry(address).or_default();
        address.subchannels += 1;
        Arc::clone(&address.tracker) as Arc<dyn CallTracker>
    }

    /// A subchannel of this address is gone.
    pub(super) fn subchannel_gone(&mut self, address: SocketAddr) {
        if let Entry::Occupied(mut entry) = self.addresses.entry(address) {
            entry.get_mut().subchannels = entry.get().subchannels.saturating_sub(1);
            if entry.get().is_forgotten() {
                entry.remove();
            }
        }
    }

    /// Whether the endpoint of this address is ejected.
    pub(super) fn is_ejected(&self, address: SocketAddr) -> bool {
        let key = self.addresses.get(&address).and_then(|address| address.endpoint.as_ref());
        key.and_then(|key| self.endpoints.get(key)).is_some_and(|endpoint| endpoint.ejection.is_some())
    }

    /// How many endpoints are ejected.
    pub(super) fn ejected(&self) -> usize {
        self.ejected
    }

    /// How many times an endpoint was ejected so far.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections
    }

    /// The endpoints that are ejected: since when and until when, how many times in a row, and for which calls.
    pub(super) fn describe(&self, config: &Detection, now: Time) -> Vec<Detail> {
        let ejected = |(key, endpoint): (&EndpointKey, &EndpointState)| {
            let Ejection { since, counts } = endpoint.ejection.as_ref()?;
            let end = *since + config.ejection_time(endpoint.multiplier);
            let detail = Detail::new("ejected", key.to_string())
                .with("calls", counts.total())
                .with("failed", counts.failures)
                .with("times_in_a_row", endpoint.multiplier);
            Some(
                detail.with_seconds("for_seconds", now.since(*since)).with_seconds("ends_in", end.since(now)),
            )
        };
        self.endpoints.iter().filter_map(ejected).collect()
    }

    /// A50: what happens when the timer fires.
    pub(super) fn sweep(&mut self, config: &Detection, now: Time, rng: &mut Rng) {
        let sample = |endpoint: &EndpointState| Sample {
            counts: endpoint.counter.swap(),
            ejected: endpoint.ejection.is_some(),
        };
        let mut samples: Vec<_> = self.endpoints.values().map(sample).collect();
        eject_outliers(config, &mut samples, rng);
        for ((key, endpoint), sample) in self.endpoints.iter_mut().zip(samples) {
            match &endpoint.ejection {
                None if sample.ejected => {
                    tracing::debug!(target: "outlier_detection_lb", endpoint = ?key, counts = ?sample.counts, "ejected");
                    endpoint.ejection = Some(Ejection { since: now, counts: sample.counts });
                    self.ejections += 1;
                    endpoint.multiplier = endpoint.multiplier.saturating_add(1);
                }
                // A50: in service, the next ejection gets shorter again.
                None => endpoint.multiplier = endpoint.multiplier.saturating_sub(1),
                Some(Ejection { since, .. }) if now > *since + config.ejection_time(endpoint.multiplier) => {
                    tracing::debug!(target: "outlier_detection_lb", endpoint = ?key, "returned to service");
                    endpoint.ejection = None;
                }
                Some(_) => {}
            }
        }
        self.count_ejected();
    }

    fn count_ejected(&mut self) {
        self.ejected = self.endpoints.values().filter(|endpoint| endpoint.ejection.is_some()).count();
    }

    fn forget_unlisted(&mut self) {
        self.addresses.retain(|_, address| {
            if address.endpoint.is_none() {
                address.tracker.count_for(None);
            }
            !address.is_forgotten()
        });
    }
}

impl Address {
    /// Whether it is not listed and has no subchannels.
    fn is_forgotten(&self) -> bool {
        self.endpoint.is_none() && self.subchannels == 0
    }
}
