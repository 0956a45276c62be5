//! Counters of RPCs in flight, shared by all who talk to the same cluster (gRFC A32, A37-55 to A37-57).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use proxyless_balancer::api::{PermitSource, PickPermit};

/// The counters by {cluster, EDS service name}. Clones are the same registry; [`CircuitRegistry::default`] is a new
/// one, for tests and simulations that share nothing.
///
/// Locked only when a configuration changes or a counter goes away, never by a pick.
#[derive(Clone, Default)]
pub struct CircuitRegistry(Arc<Mutex<BTreeMap<Key, Weak<Circuit>>>>);

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
        let circuit = self.lock().get(&key).and_then(Weak::upgrade);
        circuit.map_or(0, |circuit| circuit.in_flight())
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
    pub(super) fn circuit(&self, cluster: &Arc<str>, eds_service_name: Option<&Arc<str>>) -> Arc<Circuit> {
        let key = Key { cluster: Arc::clone(cluster), eds_service_name: eds_service_name.cloned() };
        let mut circuits = self.lock();
        if let Some(circuit) = circuits.get(&key).and_then(Weak::upgrade) {
            return circuit;
        }
        let circuit =
            Circuit { in_flight: AtomicU32::new(0), key: key.clone(), registry: Arc::downgrade(&self.0) };
        let circuit = Arc::new(circuit);
        circuits.insert(key, Arc::downgrade(&circuit));
        circuit
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<Circuit>>> {
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

/// The counter of one cluster. Lives as long as a picker or an RPC holds it, so policy churn does not reset it.
pub(super) struct Circuit {
    in_flight: AtomicU32,
    key: Key,
    registry: Weak<Mutex<BTreeMap<Key, Weak<Circuit>>>>,
}

impl Circuit {
    /// How many places are taken.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Takes a place, unless `max` are taken. Never overshoots, however many ask at once.
    pub(super) fn enter(self: &Arc<Self>, max: u32) -> Option<PickPermit> {
        // Relaxed: the number guards nothing but itself.
        let entered = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |in_flight| {
            (in_flight < max).then_some(in_flight + 1)
        });
        entered.is_ok().then(|| PickPermit::new(Arc::clone(self) as Arc<dyn PermitSource>))
    }
}

impl PermitSource for Circuit {
    fn release(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Circuit {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut circuits = registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Between the last release and this lock someone may have put a new counter into the place.
        if circuits.get(&self.key).is_some_and(|circuit| circuit.strong_count() == 0) {
            circuits.remove(&self.key);
        }
    }
}
