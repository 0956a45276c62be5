//! Sums and distributions that many threads add to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use proxyless::telemetry::{AttemptSeries, EndedAttempt, Kind, Series};

/// The number of stripes of a series, so that threads do not write the same cache line.
const STRIPES: usize = 8;

/// The stripe of all threads that have none of their own; each of the others belongs to one of the first threads.
const SHARED: usize = STRIPES - 1;

/// The number of buckets that fit, one beyond the last bound included: more than any instrument has.
const MOST_BUCKETS: usize = 44;

/// The values of one series.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Sum(Arc<Sum>),
    Distribution(Arc<Histogram>),
}

/// A sum by stripe.
#[derive(Debug, Default)]
pub(super) struct Sum([SumStripe; STRIPES]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct SumStripe(AtomicU64);

/// A distribution by stripe. With one call at a time the caches have been emptied when a call ends, so a record should
/// read few cache lines and pages: everything that it needs is in the stripe, which is allocated when one of its threads
/// records first, near those of other series that the thread records then.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    stripes: [OnceLock<Box<Stripe>>; STRIPES],
}

/// In this order: the sum, and the first buckets, which most values are in, share a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Stripe {
    bounds: &'static [f64],
    /// The bucket of the last value, which the next one is likely to be near: a search would read most bounds.
    last: AtomicUsize,
    /// The bits of the sum, a floating point number.
    sum: AtomicU64,
    /// By bound, and one beyond the last.
    counts: [AtomicU64; MOST_BUCKETS],
}

/// The distributions of attempts with one set of labels, and of the calls that end with them.
pub(super) struct Attempts {
    pub(super) durations: Arc<Histogram>,
    pub(super) sent: Arc<Histogram>,
    pub(super) received: Arc<Histogram>,
    pub(super) calls: Option<Arc<Histogram>>,
}

/// A distribution as it was read.
#[derive(Debug, PartialEq)]
pub(super) struct Distribution {
    /// Not cumulative; one more than there are bounds.
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Values {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Histogram(bounds) => Self::Distribution(Arc::new(Histogram::new(bounds))),
            _ => Self::Sum(Arc::default()),
        }
    }

    /// The current value of a gauge.
    pub(super) fn gauge(value: f64) -> Self {
        let sum = Sum::default();
        sum.record(value);
        Self::Sum(Arc::new(sum))
    }

    /// What calls record into.
    pub(super) fn series(&self) -> Arc<dyn Series> {
        match self {
            Self::Sum(sum) => Arc::clone(sum) as _,
            Self::Distribution(histogram) => Arc::clone(histogram) as _,
        }
    }

    /// What attempts record into.
    pub(super) fn histogram(&self) -> Option<Arc<Histogram>> {
        match self {
            Self::Sum(_) => None,
            Self::Distribution(histogram) => Some(Arc::clone(histogram)),
        }
    }

    /// The sum of a counter, or the value of a gauge.
    pub(super) fn sum(&self) -> i64 {
        match self {
            Self::Sum(sum) => {
                let sums = sum.0.iter().map(|SumStripe(sum)| sum.load(Ordering::Relaxed));
                // Negative numbers wrap, here and where they are added.
                sums.fold(0, u64::wrapping_add) as i64
            }
            Self::Distribution(_) => 0,
        }
    }

    /// The distribution, if it is one.
    pub(super) fn distribution(&self) -> Option<(&'static [f64], Distribution)> {
        let Self::Distribution(histogram) = self else { return None };
        let bounds = histogram.bounds;
        let mut counts = vec![0; bounds.len() + 1];
        let mut sum = 0.0;
        for stripe in histogram.stripes.iter().filter_map(OnceLock::get) {
            for (total, count) in counts.iter_mut().zip(&stripe.counts) {
                *total += count.load(Ordering::Relaxed);
            }
            sum += f64::from_bits(stripe.sum.load(Ordering::Relaxed));
        }
        Some((bounds, Distribution { counts, sum }))
    }
}

impl Series for Sum {
    fn record(&self, value: f64) {
        let own = own_stripe();
        if let Some(SumStripe(sum)) = self.0.get(own) {
            add(sum, value as i64 as u64, own);
        }
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let bounds = bounds.get(..MOST_BUCKETS - 1).unwrap_or(bounds);
        Self { bounds, stripes: [const { OnceLock::new() }; STRIPES] }
    }

    #[inline]
    fn record_in(&self, own: usize, values: impl Iterator<Item = f64>) {
        let Some(stripe) = self.stripes.get(own) else { return };
        let stripe = stripe.get_or_init(|| Stripe::new(self.bounds));
        let last = stripe.last.load(Ordering::Relaxed);
        let (mut bucket, mut added) = (last, 0.0);
        for value in values {
            bucket = stripe.bucket(bucket, value);
            if let Some(count) = stripe.counts.get(bucket) {
                add(count, 1, own);
            }
            added += value;
        }
        if bucket != last {
            stripe.last.store(bucket, Ordering::Relaxed);
        }
        // Only this thread writes its stripe, as in `add`.
        let plus = |sum: u64| (f64::from_bits(sum) + added).to_bits();
        if own == SHARED {
            let _ = stripe.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(plus(sum)));
        } else {
            stripe.sum.store(plus(stripe.sum.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }
}

impl Series for Histogram {
    fn record(&self, value: f64) {
        self.record_in(own_stripe(), std::iter::once(value));
    }
}

impl AttemptSeries for Attempts {
    fn record(&self, attempt: &EndedAttempt) {
        self.record_all(std::slice::from_ref(attempt));
    }

    fn record_all(&self, attempts: &[EndedAttempt]) {
        let own = own_stripe();
        self.durations.record_in(own, attempts.iter().map(|attempt| attempt.seconds));
        self.sent.record_in(own, attempts.iter().map(|attempt| attempt.sent as f64));
        self.received.record_in(own, attempts.iter().map(|attempt| attempt.received as f64));
        if let Some(calls) = &self.calls {
            calls.record_in(own, attempts.iter().filter_map(|attempt| attempt.call_seconds));
        }
    }
}

impl Stripe {
    /// Not inlined: it needs much of the stack, which is cold when a call ends.
    #[cold]
    #[inline(never)]
    fn new(bounds: &'static [f64]) -> Box<Self> {
        let counts = [const { AtomicU64::new(0) }; MOST_BUCKETS];
        Box::new(Self { bounds, last: AtomicUsize::new(0), sum: AtomicU64::new(0), counts })
    }

    /// The bucket of a value; the search begins with another one. A66: a bucket includes its upper bound.
    fn bucket(&self, mut bucket: usize, value: f64) -> usize {
        while self.bounds.get(bucket).is_some_and(|&bound| bound < value) {
            bucket += 1;
        }
        while bucket > 0 && !self.bounds.get(bucket - 1).is_some_and(|&bound| bound < value) {
            bucket -= 1;
        }
        bucket
    }
}

/// Adds to a cell of a stripe. Relaxed: the values order nothing else.
fn add(cell: &AtomicU64, value: u64, stripe: usize) {
    if stripe == SHARED {
        cell.fetch_add(value, Ordering::Relaxed);
    } else {
        // Only this thread writes the cell, which saves the cost of a locked instruction.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
    }
}

/// The stripe of this thread. Stripes of threads that have ended are not given to others.
fn own_stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    // Constant, so that reading it is one instruction.
    thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
    #[cold]
    fn next() -> usize {
        let stripe = THREADS.fetch_add(1, Ordering::Relaxed).min(SHARED);
        STRIPE.set(stripe);
        stripe
    }
    match STRIPE.get() {
        usize::MAX => next(),
        stripe => stripe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a66_buckets_include_their_upper_bounds() {
        let values = Values::new(Kind::Histogram(&[0.0, 1.0, 2.0]));
        let series = &*values.series();
        std::thread::scope(|scope| {
            for value in [0.0, 0.5, 1.0, 1.5, 9.0] {
                scope.spawn(move || series.record(value));
            }
        });
        let (_, distribution) = values.distribution().unwrap();
        assert_eq!(distribution, Distribution { counts: vec![1, 2, 1, 1], sum: 12.0 });
    }

    #[test]
    fn a66_the_bucket_does_not_depend_on_the_last_value() {
        let bounds = &[0.0, 1.0, 2.0];
        let stripe = Stripe::new(bounds);
        let values = [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 9.0, f64::NAN];
        for (last, value) in values.iter().flat_map(|last| values.map(|value| (*last, value))) {
            let last = stripe.bucket(0, last);
            assert_eq!(
                stripe.bucket(last, value),
                bounds.partition_point(|&bound| bound < value),
                "{last}, {value}"
            );
        }
    }

    #[test]
    fn nothing_is_lost_however_many_threads_add() {
        let values = Values::new(Kind::Histogram(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| (0..1_000).for_each(|_| values.series().record(1.0)));
            }
        });
        let (_, distribution) = values.distribution().unwrap();
        let total = 3 * STRIPES as u64 * 1_000;
        assert_eq!(distribution, Distribution { counts: vec![total, 0], sum: total as f64 });
    }

    #[test]
    fn sums_of_sizes_do_not_overflow() {
        let values = Values::new(Kind::Histogram(&[1.0]));
        (0..4).for_each(|_| values.series().record(1e13));
        assert_eq!(values.distribution().unwrap().1, Distribution { counts: vec![0, 4], sum: 4e13 });
    }

    #[test]
    fn the_buckets_of_every_instrument_fit() {
        for instrument in proxyless::telemetry::instruments::ALL {
            if let Kind::Histogram(bounds) = instrument.kind {
                assert!(bounds.len() < MOST_BUCKETS, "{}", instrument.name);
            }
        }
    }

    #[test]
    fn sums_go_up_and_down() {
        let values = Values::new(Kind::UpDownCounter);
        [1.0, 1.0, -1.0].iter().for_each(|&value| values.series().record(value));
        assert_eq!(values.sum(), 1);
        // From another thread: the stripes are of both signs.
        std::thread::scope(|scope| scope.spawn(|| (0..3).for_each(|_| values.series().record(-1.0))).join())
            .unwrap();
        assert_eq!(values.sum(), -2);
        assert!(values.distribution().is_none());
    }
}
