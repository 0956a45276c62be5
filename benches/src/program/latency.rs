//! Latencies in buckets of about 1 %.

use std::time::Duration;

/// The number of buckets per power of two.
const PER_OCTAVE: usize = 64;
const OCTAVES: usize = 40;

/// A histogram of latencies.
#[derive(Clone)]
pub(super) struct Latencies(Vec<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(vec![0; PER_OCTAVE * OCTAVES])
    }
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket(nanos).min(self.0.len() - 1);
        // In bounds by the line above.
        self.0[bucket] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum += more;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency that this share of calls did not exceed, in microseconds.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share).ceil();
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        found.map_or(0.0, |bucket| middle(bucket) / 1e3)
    }
}

fn bucket(nanos: u64) -> usize {
    let octave = nanos.max(1).ilog2() as usize;
    let within = (nanos as f64 / (1u64 << octave) as f64 - 1.0).max(0.0);
    octave * PER_OCTAVE + (within * PER_OCTAVE as f64) as usize
}

fn middle(bucket: usize) -> f64 {
    let (octave, within) = (bucket / PER_OCTAVE, bucket % PER_OCTAVE);
    (1u64 << octave) as f64 * (1.0 + (within as f64 + 0.5) / PER_OCTAVE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut latencies = Latencies::default();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        assert_eq!(latencies.count(), 1000);
        for (share, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = latencies.quantile_us(share);
            assert!((found / expected - 1.0).abs() < 0.02, "{share}: {found}");
        }
    }
}
