//! The tracked endpoints: their counts and ejections, and the endpoint of each address.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::{Rng, Time};

use super::EjectionSettings;
use super::counter::{AddressTracker, IntervalCounter};
use super::difference::Difference;
use super::ejection::{Detected, Sample, eject_outliers, ejection_time};
use crate::api::{CallCounts, CallTracker, Detail, Endpoints, PolicyEvent};
use crate::petiole::EndpointKey;
use crate::targets;

/// A61: endpoints by their set of addresses, and addresses with a pointer to their endpoint.
#[derive(Default)]
pub(super) struct Watched {
    endpoints: BTreeMap<EndpointKey, EndpointState>,
    addresses: BTreeMap<SocketAddr, AddressState>,
    /// Whether every address belongs to one endpoint, and occurs once.
    disjoint: bool,
    /// The number of ejected endpoints.
    ejected: usize,
    /// The number of ejections so far, including those of removed endpoints.
    ejections: u64,
}

#[derive(Default)]
struct EndpointState {
    counter: Arc<IntervalCounter>,
    ejection: Option<Ejection>,
    /// The number of consecutive ejections, as defined by A50.
    multiplier: u32,
}

struct Ejection {
    since: Time,
    /// The counts that caused the ejection.
    counts: CallCounts,
}

#[derive(Default)]
struct AddressState {
    tracker: Arc<AddressTracker>,
    endpoint: Option<EndpointKey>,
    /// The number of subchannels of the address.
    subchannels: usize,
}

impl Watched {
    /// Sets the tracked endpoints; those tracked already keep their state. `last` is the list tracked now, if any.
    pub(super) fn watch(&mut self, endpoints: &Endpoints, last: Option<&Endpoints>) {
        if last.is_none_or(|last| !self.watch_difference(last, endpoints)) {
            self.watch_all(endpoints);
        }
    }

    /// Applies only the difference; returns false if that is impossible, or not cheaper.
    fn watch_difference(&mut self, last: &Endpoints, endpoints: &Endpoints) -> bool {
        if !self.disjoint {
            return false;
        }
        let Difference { gone, new } = Difference::between(last, endpoints);
        if gone.len() + new.len() > endpoints.count() / 4 {
            return false;
        }
        let mut gone: BTreeMap<_, _> =
            gone.into_iter().map(|endpoint| (EndpointKey::of(endpoint), endpoint)).collect();
        let mut new: Vec<_> = new.into_iter().map(|endpoint| (EndpointKey::of(endpoint), endpoint)).collect();
        // Endpoints that moved or changed other fields, with the same addresses, keep their state.
        new.retain(|(key, _)| gone.remove(key).is_none());
        for (key, endpoint) in gone {
            // A50: endpoints that are no longer listed are forgotten.
            let state = self.endpoints.remove(&key);
            self.ejected -= usize::from(state.is_some_and(|state| state.ejection.is_some()));
            for &address in endpoint.addresses.iter() {
                if let Entry::Occupied(mut entry) = self.addresses.entry(address) {
                    entry.get_mut().endpoint = None;
                    entry.get_mut().tracker.count_for(None);
                    if entry.get().is_forgotten() {
                        entry.remove();
                    }
                }
            }
        }
        for (key, endpoint) in new {
            let state = self.endpoints.entry(key.clone()).or_default();
            for address in endpoint.addresses.iter() {
                let address = self.addresses.entry(*address).or_default();
                if address.endpoint.is_some() {
                    return false;
                }
                address.tracker.count_for(Some(&state.counter));
                address.endpoint = Some(key.clone());
            }
        }
        true
    }

    fn watch_all(&mut self, endpoints: &Endpoints) {
        self.disjoint = true;
        self.addresses.values_mut().for_each(|address| address.endpoint = None);
        let mut listed = BTreeSet::new();
        endpoints.flatten(&mut |endpoint| {
            let key = EndpointKey::of(endpoint);
            let state = self.endpoints.entry(key.clone()).or_default();
            for address in endpoint.addresses.iter() {
                let address = self.addresses.entry(*address).or_default();
                self.disjoint &= address.endpoint.is_none();
                // A61: an address may move to another endpoint.
                address.tracker.count_for(Some(&state.counter));
                address.endpoint = Some(key.clone());
            }
            listed.insert(key);
        });
        // A50: endpoints that are no longer listed are forgotten.
        self.endpoints.retain(|key, _| listed.contains(key));
        self.count_ejected();
        self.forget_unlisted();
    }

    /// A50: without an algorithm nothing is counted or ejected, and all multipliers are zero.
    pub(super) fn clear(&mut self) {
        self.endpoints.clear();
        self.ejected = 0;
        self.addresses.values_mut().for_each(|address| address.endpoint = None);
        self.forget_unlisted();
    }

    /// The tracker for a new subchannel of this address.
    pub(super) fn subchannel_made(&mut self, address: SocketAddr) -> Arc<dyn CallTracker> {
        let address = self.addresses.entry(address).or_default();
        address.subchannels += 1;
        Arc::clone(&address.tracker) as Arc<dyn CallTracker>
    }

    /// A subchannel of this address was dropped.
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

    /// The number of ejected endpoints.
    pub(super) fn ejected(&self) -> usize {
        self.ejected
    }

    /// The number of ejections so far.
    pub(super) fn ejections(&self) -> u64 {
        self.ejections
    }

    /// The ejected endpoints: start, end, number of consecutive ejections, and the counts that caused it.
    pub(super) fn describe(&self, config: &EjectionSettings, now: Time) -> Vec<Detail> {
        let ejected = |(key, endpoint): (&EndpointKey, &EndpointState)| {
            let Ejection { since, counts } = endpoint.ejection.as_ref()?;
            let end = *since + ejection_time(config, endpoint.multiplier);
            let detail = Detail::new("ejected", key.to_string())
                .with_seconds("for_seconds", now.since(*since))
                .with_seconds("ends_in_seconds", end.since(now))
                .with("calls", counts.ended())
                .with("failed", counts.failed)
                .with("times_in_a_row", endpoint.multiplier);
            Some(detail)
        };
        self.endpoints.iter().filter_map(ejected).collect()
    }

    /// A50: the sweep when the timer fires. Returns the ejections and the returns from ejection.
    pub(super) fn sweep(
        &mut self,
        config: &EjectionSettings,
        now: Time,
        rng: &mut Rng,
    ) -> (Vec<PolicyEvent>, Detected) {
        let sample = |endpoint: &EndpointState| Sample {
            counts: endpoint.counter.swap(),
            ejected: endpoint.ejection.is_some(),
        };
        let mut samples: Vec<_> = self.endpoints.values().map(sample).collect();
        let detected = eject_outliers(config, &mut samples, rng);
        let mut events = Vec::new();
        for ((key, endpoint), sample) in self.endpoints.iter_mut().zip(samples) {
            match &endpoint.ejection {
                None if sample.ejected => {
                    tracing::debug!(
                        target: targets::OUTLIER_DETECTION_LB, endpoint = ?key, counts = ?sample.counts, "ejected"
                    );
                    endpoint.ejection = Some(Ejection { since: now, counts: sample.counts });
                    self.ejections += 1;
                    endpoint.multiplier = endpoint.multiplier.saturating_add(1);
                    events.push(PolicyEvent::Ejected {
                        endpoint: key.to_string(),
                        time: ejection_time(config, endpoint.multiplier),
                        calls: sample.counts.ended(),
                        failed: sample.counts.failed,
                    });
                }
                // A50: in service, the next ejection becomes shorter again.
                None => endpoint.multiplier = endpoint.multiplier.saturating_sub(1),
                Some(Ejection { since, .. }) if now > *since + ejection_time(config, endpoint.multiplier) => {
                    tracing::debug!(target: targets::OUTLIER_DETECTION_LB, endpoint = ?key, "returned to service");
                    endpoint.ejection = None;
                    events.push(PolicyEvent::Returned { endpoint: key.to_string() });
                }
                Some(_) => {}
            }
        }
        self.count_ejected();
        (events, detected)
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

impl AddressState {
    /// Whether it is not listed and has no subchannels.
    fn is_forgotten(&self) -> bool {
        self.endpoint.is_none() && self.subchannels == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Endpoint;
    use crate::testing::{address, endpoint_at};

    fn view(watched: &Watched) -> (Vec<&EndpointKey>, Vec<(&SocketAddr, Option<&EndpointKey>)>) {
        let addresses = watched.addresses.iter().map(|(address, of)| (address, of.endpoint.as_ref()));
        (watched.endpoints.keys().collect(), addresses.collect())
    }

    #[test]
    fn a61_incremental_and_full_updates_agree() {
        let mut rng = Rng::new(11);
        let mut short_ways = 0;
        for _ in 0..100 {
            // Some iterations have addresses shared by several endpoints.
            let shared = rng.below(3) == 0;
            let mut list: Vec<Arc<Endpoint>> = Vec::new();
            let mut next = 1;
            let (mut watched, mut last) = (Watched::default(), None::<Endpoints>);
            for _ in 0..20 {
                for _ in 0..=rng.below(8) {
                    let at = rng.below(list.len() as u64 + 1) as usize;
                    match rng.below(4) {
                        0 if at < list.len() => drop(list.remove(at)),
                        1 if at < list.len() => list[at] = Arc::new(Endpoint::clone(&list[at])),
                        _ => {
                            let number = if shared { rng.below(60) as u16 } else { next };
                            next += 2;
                            let both = [address(number), address(number + 1)];
                            let addresses = both.split_at(1 + rng.below(2) as usize).0;
                            list.insert(at, Arc::new(endpoint_at(addresses)));
                        }
                    }
                }
                let endpoints = Endpoints::List(list.iter().cloned().collect());
                if let Some(last) = &last {
                    let Difference { gone, new } = Difference::between(last, &endpoints);
                    short_ways += usize::from(watched.disjoint && (gone.len() + new.len()) * 4 <= list.len());
                }
                watched.watch(&endpoints, last.as_ref());
                let mut fresh = Watched::default();
                fresh.watch(&endpoints, None);
                assert_eq!(view(&watched), view(&fresh));
                last = Some(endpoints);
            }
        }
        assert!(short_ways > 100, "{short_ways}");
    }
}
