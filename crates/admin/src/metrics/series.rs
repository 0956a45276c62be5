//! Sums and distributions that many threads add to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use proxyless::telemetry::{Kind, Series};

/// The fraction of one that sums are counted in: nanoseconds for seconds.
const FRACTION: f64 = 1e9;

/// The number of stripes of a series, so that threads do not write the same cache line.
const STRIPES: usize = 8;

/// The stripe of all threads that have none of their own; each of the others belongs to one of the first threads.
const SHARED: usize = STRIPES - 1;

/// The number of buckets that fit, one beyond the last bound included: more than any instrument has.
const MOST_BUCKETS: usize = 44;

/// The values of one series.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be another pointer on the data path")]
pub(super) enum Values {
    Sum([SumStripe; STRIPES]),
    /// Without further pointers: recording runs on the data path.
    Distribution {
        bounds: &'static [f64],
        stripes: [Stripe; STRIPES],
    },
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct SumStripe(AtomicU64);

/// In this order: the sum and the first buckets, which most values are in, share a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Stripe {
    /// The sum in billionths.
    sum: AtomicU64,
    /// By bound, and one beyond the last.
    counts: [AtomicU64; MOST_BUCKETS],
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
            Kind::Histogram(bounds) => {
                let bounds = bounds.get(..MOST_BUCKETS - 1).unwrap_or(bounds);
                let counts = || std::array::from_fn(|_| AtomicU64::new(0));
                let stripe = |_| Stripe { counts: counts(), sum: AtomicU64::new(0) };
                Self::Distribution { bounds, stripes: std::array::from_fn(stripe) }
            }
            _ => Self::Sum(std::array::from_fn(|_| SumStripe::default())),
        }
    }

    /// The current value of a gauge.
    pub(super) fn gauge(value: f64) -> Self {
        let sum = Self::new(Kind::Gauge);
        sum.record(value);
        sum
    }

    /// The sum of a counter, or the value of a gauge.
    pub(super) fn sum(&self) -> i64 {
        match self {
            Self::Sum(stripes) => {
                let sums = stripes.iter().map(|SumStripe(sum)| sum.load(Ordering::Relaxed));
                // Negative numbers wrap, here and where they are added.
                sums.fold(0, u64::wrapping_add) as i64
            }
            Self::Distribution { .. } => 0,
        }
    }

    /// The distribution, if it is one.
    pub(super) fn distribution(&self) -> Option<(&'static [f64], Distribution)> {
        let Self::Distribution { bounds, stripes } = self else { return None };
        let mut counts = vec![0; bounds.len() + 1];
        let mut sum = 0.0;
        for stripe in stripes.iter() {
            for (total, count) in counts.iter_mut().zip(&stripe.counts) {
                *total += count.load(Ordering::Relaxed);
            }
            sum += stripe.sum.load(Ordering::Relaxed) as f64 / FRACTION;
        }
        Some((bounds, Distribution { counts, sum }))
    }
}

impl Series for Values {
    fn record(&self, value: f64) {
        let own = own_stripe();
        match self {
            Self::Sum(stripes) => {
                if let Some(SumStripe(sum)) = stripes.get(own) {
                    add(sum, value as i64 as u64, own);
                }
            }
            Self::Distribution { bounds, stripes } => {
                // A66: a bucket includes its upper bound.
                let bucket = bounds.partition_point(|&bound| bound < value);
                let Some(stripe) = stripes.get(own) else { return };
                if let Some(count) = stripe.counts.get(bucket) {
                    add(count, 1, own);
                }
                add(&stripe.sum, (value * FRACTION) as u64, own);
            }
        }
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
    thread_local!(static STRIPE: usize = THREADS.fetch_add(1, Ordering::Relaxed).min(SHARED));
    // The thread-local is gone when a thread ends.
    STRIPE.try_with(|stripe| *stripe).unwrap_or(SHARED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a66_buckets_include_their_upper_bounds() {
        let values = Values::new(Kind::Histogram(&[0.0, 1.0, 2.0]));
        std::thread::scope(|scope| {
            for value in [0.0, 0.5, 1.0, 1.5, 9.0] {
                let values = &values;
                scope.spawn(move || values.record(value));
            }
        });
        let (_, distribution) = values.distribution().unwrap();
        assert_eq!(distribution, Distribution { counts: vec![1, 2, 1, 1], sum: 12.0 });
    }

    #[test]
    fn nothing_is_lost_however_many_threads_add() {
        let values = Values::new(Kind::Histogram(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| (0..1_000).for_each(|_| values.record(1.0)));
            }
        });
        let (_, distribution) = values.distribution().unwrap();
        let total = 3 * STRIPES as u64 * 1_000;
        assert_eq!(distribution, Distribution { counts: vec![total, 0], sum: total as f64 });
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
        [1.0, 1.0, -1.0].iter().for_each(|&value| values.record(value));
        assert_eq!(values.sum(), 1);
        // From another thread: the stripes are of both signs.
        std::thread::scope(|scope| scope.spawn(|| (0..3).for_each(|_| values.record(-1.0))).join()).unwrap();
        assert_eq!(values.sum(), -2);
        assert!(values.distribution().is_none());
    }
}
