//! Counters of RPCs in flight, shared by all users of a cluster (gRFC A32, A37-55 to A37-57).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use proxyless_balancer::api::{LazyStriped, Padded, PermitSource, PickPermit};
use proxyless_sans_io::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use proxyless_sans_io::sync::{Mutex, MutexGuard};

/// The counters by {cluster, EDS service name}. Clones share the registry; [`CircuitRegistry::default`] creates a new
/// one, for isolated tests and simulations.
///
/// Locked only when a configuration changes or a counter is dropped, never by a pick.
#[derive(Clone, Default)]
pub struct CircuitRegistry(Arc<Mutex<BTreeMap<CircuitKey, Weak<PermitCounter>>>>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CircuitKey {
    cluster: Arc<str>,
    eds_service_name: Option<Arc<str>>,
}

impl CircuitRegistry {
    /// The registry of the process, shared by its channels (A37-57).
    #[must_use]
    pub fn global() -> Self {
        static GLOBAL: OnceLock<CircuitRegistry> = OnceLock::new();
        GLOBAL.get_or_init(Self::default).clone()
    }

    /// The number of RPCs in flight to a cluster.
    #[must_use]
    pub fn in_flight(&self, cluster: &str, eds_service_name: Option<&str>) -> u32 {
        let key =
            CircuitKey { cluster: Arc::from(cluster), eds_service_name: eds_service_name.map(Arc::from) };
        let permits = self.lock().get(&key).and_then(Weak::upgrade);
        permits.map_or(0, |permits| permits.in_flight())
    }

    /// The number of counters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are no counters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counter of a cluster, created on demand.
    pub(super) fn circuit(&self, cluster: &Arc<str>, eds_service_name: Option<&Arc<str>>) -> Circuit {
        let key = CircuitKey { cluster: Arc::clone(cluster), eds_service_name: eds_service_name.cloned() };
        let mut circuits = self.lock();
        if let Some(permits) = circuits.get(&key).and_then(Weak::upgrade) {
            return Circuit::new(&permits);
        }
        let permits = Arc::new(PermitCounter {
            taken: Padded::default(),
            spare: LazyStriped::default(),
            key: key.clone(),
            registry: Arc::downgrade(&self.0),
        });
        circuits.insert(key, Arc::downgrade(&permits));
        Circuit::new(&permits)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CircuitKey, Weak<PermitCounter>>> {
        // The map is consistent whenever the lock is free, even if a holder panicked.
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

/// Access to the counter of one cluster. Permits are counted per stripe: a single counter shared by all threads would
/// cost more than the rest of the pick.
pub(super) struct Circuit {
    permits: Arc<PermitCounter>,
    stripes: LazyStriped<Arc<Stripe>>,
}

impl Circuit {
    fn new(permits: &Arc<PermitCounter>) -> Self {
        Self { permits: Arc::clone(permits), stripes: LazyStriped::default() }
    }

    /// The number of permits in use.
    pub(super) fn in_flight(&self) -> u32 {
        self.permits.in_flight()
    }

    /// Takes a permit, unless `max` are taken. Never exceeds the limit, even under contention.
    pub(super) fn enter(&self, max: u32) -> Option<PickPermit> {
        let stripe = self.stripes.own_or(|stripe| Stripe::new(stripe, &self.permits));
        let entered = self.permits.enter(&stripe.spare, max);
        entered.then(|| PickPermit::new(Arc::clone(stripe) as Arc<dyn PermitSource>))
    }
}

/// The source of the permits of a stripe. One cache line from the reference counts in front of it to its end, so that the
/// counts of two stripes are on different lines, whatever their alignment.
struct Stripe {
    permits: Arc<PermitCounter>,
    spare: Arc<Spare>,
    _rest: [u64; 4],
}

impl Stripe {
    fn new(stripe: usize, permits: &Arc<PermitCounter>) -> Arc<Self> {
        let spare = Arc::clone(permits.spare.at_or(stripe, |_| Arc::default()));
        Arc::new(Self { permits: Arc::clone(permits), spare, _rest: [0; 4] })
    }
}

impl PermitSource for Stripe {
    fn release(&self) {
        self.permits.leave(&self.spare);
    }
}

/// The maximum number of spare permits of a stripe.
const KEPT: u32 = if cfg!(proxyless_loom) { 1 } else { 16 };

/// The counter of one cluster. Lives as long as a picker or an RPC holds it, so policy churn does not reset it.
///
/// A permit is in use, spare in one stripe, or free, and each transition is one atomic step, so that a permit in
/// transition is never seen as taken. All steps have a total order (SeqCst), which [`PermitCounter::find`] relies on; it
/// says what holds for the first permits of a stripe.
struct PermitCounter {
    /// The number of permits in use and spare.
    taken: Padded<AtomicU32>,
    /// By stripe; each exists before the first permit of its stripe is taken.
    spare: LazyStriped<Arc<Spare>>,
    key: CircuitKey,
    registry: Weak<Mutex<BTreeMap<CircuitKey, Weak<PermitCounter>>>>,
}

impl PermitCounter {
    /// The number of permits in use: exact if no call ends meanwhile, else close.
    fn in_flight(&self) -> u32 {
        /// Calls that end while the stripes are read would be subtracted twice.
        const ATTEMPTS: usize = 4;
        let read = || {
            let taken = self.taken.0.load(Ordering::SeqCst);
            let added = self.spare_added();
            (taken, added, self.spare.iter().fold(taken, |left, spare| left.saturating_sub(spare.count())))
        };
        let mut last = read();
        for _ in 1..ATTEMPTS {
            let (taken, added, _) = last;
            if self.taken.0.load(Ordering::SeqCst) == taken && self.spare_added() == added {
                break;
            }
            last = read();
        }
        last.2
    }

    fn enter(&self, spare: &Spare, max: u32) -> bool {
        self.take_spare(spare, max) || self.take(max) || self.find(max)
    }

    fn leave(&self, spare: &Spare) {
        if spare.count() < KEPT {
            spare.add();
        } else {
            self.taken.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes a spare permit of a stripe. Fails if the limit has fallen below the number taken: then not all may be used.
    fn take_spare(&self, spare: &Spare, max: u32) -> bool {
        self.taken.0.load(Ordering::SeqCst) <= max && spare.take()
    }

    /// Takes a free permit.
    fn take(&self, max: u32) -> bool {
        let more = |taken: u32| taken.checked_add(1).filter(|&taken| taken <= max);
        self.taken.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes a spare permit of any stripe, or a free one. A32: fails only if there was a moment without either.
    fn find(&self, max: u32) -> bool {
        loop {
            let before = self.spare_added();
            self.give_back_beyond(max);
            if self.spare.iter().any(|spare| self.take_spare(spare, max)) || self.take(max) {
                return true;
            }
            // Each stripe was seen without a spare permit after the first read of the additions. If nothing was added
            // until the second read, no stripe had one when `take` found the limit reached. A stripe that is new since
            // then has added nothing, or `take` has read what its first call wrote, so the second read sees it. A stripe
            // that has a spare permit all the same was passed over, because a user with a higher limit has taken more.
            if self.spare_added() == before && self.spare.iter().all(|spare| spare.count() == 0) {
                return false;
            }
        }
    }

    /// A reduced limit applies to the permits in use, not to spare ones.
    fn give_back_beyond(&self, max: u32) {
        for spare in self.spare.iter() {
            while self.taken.0.load(Ordering::SeqCst) > max && spare.take() {
                self.taken.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Grows with every addition in any stripe.
    fn spare_added(&self) -> u64 {
        self.spare.iter().map(|spare| u64::from(spare.added())).sum()
    }
}

/// The number of spare permits in the lower 32 bits, and the number of additions so far in the upper ones. The padding
/// keeps the numbers of two stripes on different cache lines.
#[derive(Default)]
struct Spare {
    permits: AtomicU64,
    _rest: [u64; 5],
}

impl Spare {
    const ADDED: u64 = 1 << 32;

    fn count(&self) -> u32 {
        // The lower half.
        self.permits.load(Ordering::SeqCst) as u32
    }

    fn added(&self) -> u32 {
        (self.permits.load(Ordering::SeqCst) >> 32) as u32
    }

    fn add(&self) {
        self.permits.fetch_add(Self::ADDED + 1, Ordering::SeqCst);
    }

    /// Takes a permit, if there is one.
    fn take(&self) -> bool {
        let less = |word: u64| (word as u32 > 0).then(|| word - 1);
        self.permits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }
}

impl Drop for PermitCounter {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut circuits = registry.lock().unwrap_or_else(PoisonError::into_inner);
        // A new counter may have been inserted between the last release and this lock.
        if circuits.get(&self.key).is_some_and(|permits| permits.strong_count() == 0) {
            circuits.remove(&self.key);
        }
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;
