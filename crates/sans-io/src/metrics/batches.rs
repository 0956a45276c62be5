//! Attempts that wait to be recorded together.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{AttemptSeries, EndedAttempt};
use crate::stripes::LazyStriped;

/// The number of attempts that are recorded together.
const SIZE: usize = 16;

/// Records attempts in batches, for recorders whose series take many cache lines. With one call at a time the caches may be cold
/// when a call ends; an attempt that waits takes few lines, and a batch reads those of the series once.
///
/// The owner calls [`flush`](Self::flush) before it reads the series. Clones share everything.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use proxyless_sans_io::metrics::{AttemptSeries, Batches, EndedAttempt};
///
/// struct Sent(Arc<AtomicU64>);
///
/// impl AttemptSeries for Sent {
///     fn record(&self, attempt: &EndedAttempt) {
///         self.0.fetch_add(attempt.sent, Ordering::Relaxed);
///     }
/// }
///
/// let (sent, batches) = (Arc::<AtomicU64>::default(), Batches::default());
/// // What `Recorder::attempts` returns.
/// let series = batches.add(Sent(Arc::clone(&sent)));
/// series.record(&EndedAttempt::new(0.001, 7, 0));
/// assert_eq!(sent.load(Ordering::Relaxed), 0, "it waits");
/// batches.flush();
/// assert_eq!(sent.load(Ordering::Relaxed), 7);
/// ```
pub struct Batches<S: AttemptSeries>(Arc<Mutex<Vec<Weak<Batched<S>>>>>);

impl<S: AttemptSeries + 'static> Batches<S> {
    /// A series whose attempts are recorded in batches. Those that wait when it is dropped are recorded then.
    pub fn add(&self, series: S) -> Arc<dyn AttemptSeries> {
        let batched = Arc::new(Batched { series, stripes: LazyStriped::default() });
        let mut all = lock(&self.0);
        if all.len() == all.capacity() {
            all.retain(|other| other.strong_count() > 0);
        }
        all.push(Arc::downgrade(&batched));
        batched
    }

    /// Records all attempts that wait.
    pub fn flush(&self) {
        // Without the lock: the last reference to a series may end here.
        let all: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|batched| batched.flush());
    }
}

impl<S: AttemptSeries> Clone for Batches<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: AttemptSeries> Default for Batches<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: AttemptSeries> fmt::Debug for Batches<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batches({})", lock(&self.0).len())
    }
}

struct Batched<S: AttemptSeries> {
    series: S,
    stripes: LazyStriped<Box<Mutex<Batch>>>,
}

/// The attempts of a stripe. Locked by its threads, and for a moment by [`Batches::flush`].
#[repr(align(64))]
struct Batch {
    len: usize,
    attempts: [EndedAttempt; SIZE],
}

impl Batch {
    /// Not inlined: it needs much of the stack, which is cold when a call ends.
    #[cold]
    #[inline(never)]
    fn new() -> Box<Mutex<Self>> {
        Box::new(Mutex::new(Self { len: 0, attempts: [EndedAttempt::new(0.0, 0, 0); SIZE] }))
    }

    fn flush(&mut self, series: &impl AttemptSeries) {
        let len = std::mem::take(&mut self.len);
        series.record_all(self.attempts.get(..len).unwrap_or_default());
    }
}

impl<S: AttemptSeries> Batched<S> {
    fn flush(&self) {
        self.stripes.iter().for_each(|batch| lock(batch).flush(&self.series));
    }
}

impl<S: AttemptSeries> AttemptSeries for Batched<S> {
    fn record(&self, attempt: &EndedAttempt) {
        let batch = &mut *lock(self.stripes.own_or(|_| Batch::new()));
        if let Some(place) = batch.attempts.get_mut(batch.len) {
            *place = *attempt;
            batch.len += 1;
        }
        if batch.len == SIZE {
            batch.flush(&self.series);
        }
    }
}

impl<S: AttemptSeries> Drop for Batched<S> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// What is locked here is consistent even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes sent by each recorded attempt.
    #[derive(Clone, Default)]
    struct Sent(Arc<Mutex<Vec<u64>>>);

    impl AttemptSeries for Sent {
        fn record(&self, attempt: &EndedAttempt) {
            lock(&self.0).push(attempt.sent);
        }
    }

    fn record(series: &dyn AttemptSeries, sent: std::ops::Range<u64>) {
        sent.for_each(|sent| series.record(&EndedAttempt::new(0.0, sent, 0)));
    }

    #[test]
    fn a_full_batch_is_recorded_and_the_rest_waits_for_the_reader() {
        let (sent, batches) = (Sent::default(), Batches::default());
        let series = batches.add(sent.clone());
        let size = SIZE as u64;
        record(&*series, 0..size + 3);
        assert_eq!(*lock(&sent.0), Vec::from_iter(0..size));
        batches.flush();
        assert_eq!(*lock(&sent.0), Vec::from_iter(0..size + 3));
        batches.flush();
        assert_eq!(lock(&sent.0).len(), SIZE + 3, "recorded once");
    }

    #[test]
    fn what_waits_is_recorded_when_the_series_is_dropped() {
        let (sent, batches) = (Sent::default(), Batches::default());
        let series = batches.add(sent.clone());
        record(&*series, 0..3);
        drop(series);
        assert_eq!(*lock(&sent.0), [0, 1, 2]);
        batches.flush();
        // Series that have gone are forgotten.
        (0..100).for_each(|_| drop(batches.add(sent.clone())));
        assert!(lock(&batches.0).len() < 10);
    }

    #[test]
    fn threads_and_readers_lose_and_repeat_nothing() {
        const THREADS: u64 = 20;
        const EACH: u64 = 1_000;
        let (sent, batches) = (Sent::default(), Batches::default());
        let series = batches.add(sent.clone());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let series = &*series;
                scope.spawn(move || record(series, thread * EACH..(thread + 1) * EACH));
            }
            scope.spawn(|| (0..100).for_each(|_| batches.flush()));
        });
        batches.flush();
        let mut all = lock(&sent.0).clone();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..THREADS * EACH));
    }
}
