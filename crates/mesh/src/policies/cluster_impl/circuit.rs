//! Counters of RPCs in flight, shared by all who talk to the same cluster (gRFC A32, A37-55 to A37-57).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use proxyless_balancer::api::{Padded, PermitSource, PickPermit, STRIPES, own_stripe};

/// The counters by {cluster, EDS service name}. Clones are the same registry; [`CircuitRegistry::default`] is a new
/// one, for tests and simulations that share nothing.
///
/// Locked only when a configuration changes or a counter goes away, never by a pick.
#[derive(Clone, Default)]
pub struct CircuitRegistry(Arc<Mutex<BTreeMap<Key, Weak<Places>>>>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    cluster: Arc<str>,
    eds_service_name: Option<Arc<str>>,
}

impl CircuitRegistry {
    /// The registry of the process (A37-57: channels share it).
    #[must_use]
    pub fn global() -> Self {
        static GLOBAL: OnceLock<CircuitRegistry> = OnceLock::new();
        GLOBAL.get_or_init(Self::default).clone()
    }

    /// How many RPCs are in flight to a cluster.
    #[must_use]
    pub fn in_flight(&self, cluster: &str, eds_service_name: Option<&str>) -> u32 {
        let key = Key { cluster: Arc::from(cluster), eds_service_name: eds_service_name.map(Arc::from) };
        let places = self.lock().get(&key).and_then(Weak::upgrade);
        places.map_or(0, |places| places.in_flight())
    }

    /// How many counters there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no cluster is counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter of a cluster, made if there is none.
    pub(super) fn circuit(&self, cluster: &Arc<str>, eds_service_name: Option<&Arc<str>>) -> Circuit {
        let key = Key { cluster: Arc::clone(cluster), eds_service_name: eds_service_name.cloned() };
        let mut circuits = self.lock();
        if let Some(places) = circuits.get(&key).and_then(Weak::upgrade) {
            return Circuit::new(&places);
        }
        let places = Arc::new(Places {
            taken: Padded::default(),
            spare: Default::default(),
            key: key.clone(),
            registry: Arc::downgrade(&self.0),
        });
        circuits.insert(key, Arc::downgrade(&places));
        Circuit::new(&places)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<Places>>> {
        // The map is whole whenever the lock is free, whoever panicked while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for CircuitRegistry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for CircuitRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CircuitRegistry")
    }
}

/// The way to the counter of one cluster. Permits are counted per thread: threads that share one cluster would spend
/// more time on a shared number than on the rest of the pick.
pub(super) struct Circuit([Arc<Stripe>; STRIPES]);

impl Circuit {
    fn new(places: &Arc<Places>) -> Self {
        Self(std::array::from_fn(|index| {
            Arc::new(Stripe { line: Padded(index), places: Arc::clone(places) })
        }))
    }

    /// How many places are taken.
    pub(super) fn in_flight(&self) -> u32 {
        let [stripe, ..] = &self.0;
        stripe.places.in_flight()
    }

    /// Takes a place, unless `max` are taken. Never overshoots, however many ask at once.
    pub(super) fn enter(&self, max: u32) -> Option<PickPermit> {
        // Below STRIPES by construction.
        let stripe = &self.0[own_stripe() % STRIPES];
        let entered = stripe.places.enter(stripe.line.0, max);
        entered.then(|| PickPermit::new(Arc::clone(stripe) as Arc<dyn PermitSource>))
    }
}

/// What the permits of some threads hold: their reference count is on a cache line of its own.
struct Stripe {
    line: Padded<usize>,
    places: Arc<Places>,
}

impl PermitSource for Stripe {
    fn release(&self) {
        self.places.leave(self.line.0);
    }
}

/// How many places a thread takes at once, for itself and its next calls.
const AHEAD: u32 = 8;

/// The counter of one cluster. Lives as long as a picker or an RPC holds it, so policy churn does not reset it.
///
/// Relaxed throughout: the numbers guard nothing but themselves, and all moves between them are made so that `taken` is
/// never less than the calls in flight and the spare places together.
struct Places {
    /// Places in use, and those that are spare.
    taken: Padded<AtomicU32>,
    /// Places that threads have taken and nobody uses.
    spare: [Padded<AtomicU32>; STRIPES],
    key: Key,
    registry: Weak<Mutex<BTreeMap<Key, Weak<Places>>>>,
}

impl Places {
    fn in_flight(&self) -> u32 {
        let taken = self.taken.0.load(Ordering::Relaxed);
        self.spare.iter().fold(taken, |left, spare| left.saturating_sub(spare.0.load(Ordering::Relaxed)))
    }

    fn enter(&self, stripe: usize, max: u32) -> bool {
        let spare = &self.spare[stripe % STRIPES].0;
        // The limit may have fallen since the spare places were taken.
        if self.taken.0.load(Ordering::Relaxed) <= max && subtract(spare, 1) {
            return true;
        }
        if self.take(AHEAD, max) {
            spare.fetch_add(AHEAD - 1, Ordering::Relaxed);
            return true;
        }
        // A32: close to the limit each place counts.
        self.gather();
        self.take(1, max)
    }

    fn leave(&self, stripe: usize) {
        let spare = &self.spare[stripe % STRIPES].0;
        if spare.fetch_add(1, Ordering::Relaxed) >= 2 * AHEAD && subtract(spare, AHEAD) {
            self.taken.0.fetch_sub(AHEAD, Ordering::Relaxed);
        }
    }

    fn take(&self, count: u32, max: u32) -> bool {
        let more = |taken: u32| taken.checked_add(count).filter(|&taken| taken <= max);
        self.taken.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives all spare places back.
    fn gather(&self) {
        for Padded(spare) in &self.spare {
            let found = spare.swap(0, Ordering::Relaxed);
            self.taken.0.fetch_sub(found, Ordering::Relaxed);
        }
    }
}

/// Whether there was that much to take away.
fn subtract(from: &AtomicU32, count: u32) -> bool {
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_sub(count)).is_ok()
}

impl Drop for Places {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut circuits = registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Between the last release and this lock someone may have put a new counter into the place.
        if circuits.get(&self.key).is_some_and(|places| places.strong_count() == 0) {
            circuits.remove(&self.key);
        }
    }
}
