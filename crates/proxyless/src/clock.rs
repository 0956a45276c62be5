//! The source of time and randomness: the cores count from an epoch that is the same for the whole process.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use proxyless_sans_io::{Rng, Time};
use tokio::time::{Instant, Sleep, sleep_until};

static EPOCH: LazyLock<std::time::Instant> = LazyLock::new(|| {
    LazyLock::force(&WALL_EPOCH);
    std::time::Instant::now()
});

/// The epoch as wall-clock time, read once, so that displayed times do not change when that clock is set.
static WALL_EPOCH: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// The current time of the cores: tokio's clock, which tests can pause.
pub(crate) fn now() -> Time {
    let epoch = *EPOCH;
    Time::from_epoch(Instant::now().into_std().saturating_duration_since(epoch))
}

/// A time as wall-clock time.
pub(crate) fn wall_time(time: Time) -> SystemTime {
    WALL_EPOCH.checked_add(time.since_epoch()).unwrap_or(*WALL_EPOCH)
}

/// A process-wide unique id for inspection.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A timer for the deadlines of a core. It stays registered between two waits: most inputs change no deadline.
#[derive(Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Completes at a core's deadline; never, if it has none.
    pub(crate) async fn at(&mut self, deadline: Option<Time>) {
        // A deadline beyond the range of an instant never expires.
        let at = deadline.and_then(|deadline| EPOCH.checked_add(deadline.since_epoch()));
        let Some(at) = at.map(Instant::from_std) else {
            self.0 = None;
            return std::future::pending().await;
        };
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().await;
    }
}

thread_local! {
    /// Gives the seeds of this thread, in simulations.
    static SIMULATED: RefCell<Option<Rng>> = const { RefCell::new(None) };
    static NEXT_RNG: Cell<u64> = Cell::new(seed());
}

/// Derives all randomness of this thread from `seed`, and fixes the epoch now.
#[cfg(feature = "simulation")]
pub(crate) fn simulate(seed: u64) {
    LazyLock::force(&EPOCH);
    let mut rng = Rng::new(seed);
    NEXT_RNG.set(rng.next_u64());
    SIMULATED.set(Some(rng));
}

/// A seed that differs from process to process and from call to call.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    if let Some(seed) = SIMULATED.with_borrow_mut(|rng| rng.as_mut().map(Rng::next_u64)) {
        return seed;
    }
    // RandomState is the standard library's access to the system's entropy.
    RandomState::new().build_hasher().finish()
}

/// A generator for one RPC, without data shared between threads.
pub(crate) fn rng() -> Rng {
    // Seeds with an odd increment; it differs from the generator's own, which would produce shifted copies of one
    // sequence.
    Rng::new(NEXT_RNG.replace(NEXT_RNG.get().wrapping_add(0xd134_2543_de82_ef95)))
}
