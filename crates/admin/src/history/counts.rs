//! Counts of a distribution, and the percentiles of the calls between two of them.
//!
//! A percentile is interpolated within its bucket, so its error is at most the width of the bucket: the bounds of gRFC A66
//! are 20 to 50 % apart between 2 ms and 1 s. Beyond the last bound it is that bound.

/// All calls of a series since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// By bucket, not cumulative.
    pub(super) counts: Vec<u64>,
    /// Those with another status than OK, where the status is known.
    pub(super) failed: Option<u64>,
}

impl Totals {
    /// Adds the counts of another series.
    pub(super) fn add(&mut self, counts: &[u64], failed: Option<u64>) {
        if self.counts.len() < counts.len() {
            self.counts.resize(counts.len(), 0);
        }
        for (total, count) in self.counts.iter_mut().zip(counts) {
            *total += count;
        }
        if let Some(failed) = failed {
            *self.failed.get_or_insert(0) += failed;
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The calls since `earlier`; all of them if the counts have started again.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let reset = self.counts.len() < earlier.counts.len()
            || self.counts.iter().zip(&earlier.counts).any(|(now, before)| now < before);
        if reset {
            return self.clone();
        }
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        let counts = self.counts.iter().zip(before).map(|(now, before)| now - before).collect();
        let failed = self.failed.map(|now| now.saturating_sub(earlier.failed.unwrap_or(0)));
        Self { counts, failed }
    }

    /// The value that this part of the calls does not exceed; `None` without calls.
    pub(super) fn percentile(&self, bounds: &[f64], part: f64) -> Option<f64> {
        let calls = self.calls();
        if calls == 0 {
            return None;
        }
        let rank = part * calls as f64;
        let mut below = 0.0;
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = count as f64;
            if below + count >= rank {
                let from = bucket.checked_sub(1).and_then(|at| bounds.get(at)).copied().unwrap_or(0.0);
                // The last bucket has no upper bound.
                let to = bounds.get(bucket).copied().unwrap_or(from);
                return Some(from + (to - from) * ((rank - below) / count).clamp(0.0, 1.0));
            }
            below += count;
        }
        bounds.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[f64] = &[0.0, 1.0, 2.0, 4.0];

    fn totals(counts: &[u64]) -> Totals {
        Totals { counts: counts.to_vec(), failed: Some(0) }
    }

    #[test]
    fn percentiles_are_interpolated_within_a_bucket() {
        let calls = totals(&[0, 10, 10, 0, 0]);
        assert_eq!(calls.percentile(BOUNDS, 0.5), Some(1.0));
        assert_eq!(calls.percentile(BOUNDS, 0.25), Some(0.5));
        assert_eq!(calls.percentile(BOUNDS, 0.75), Some(1.5));
        assert_eq!(calls.percentile(BOUNDS, 1.0), Some(2.0));
        assert_eq!(totals(&[5, 0, 0, 0, 0]).percentile(BOUNDS, 0.99), Some(0.0));
    }

    #[test]
    fn beyond_the_last_bound_a_percentile_is_that_bound() {
        assert_eq!(totals(&[0, 0, 0, 0, 3]).percentile(BOUNDS, 0.5), Some(4.0));
    }

    #[test]
    fn without_calls_there_is_no_percentile() {
        assert_eq!(totals(&[0; 5]).percentile(BOUNDS, 0.5), None);
        assert_eq!(Totals::default().percentile(BOUNDS, 0.5), None);
    }

    #[test]
    fn a_difference_has_the_calls_since_then() {
        let mut now = totals(&[1, 2, 3]);
        now.add(&[0, 1, 0], Some(1));
        let since = now.since(&totals(&[1, 1, 3]));
        assert_eq!(since, Totals { counts: vec![0, 2, 0], failed: Some(1) });
        assert_eq!(now.since(&Totals::default()), now);
    }

    #[test]
    fn counts_that_started_again_are_counted_from_zero() {
        let now = totals(&[0, 2, 9]);
        assert_eq!(now.since(&totals(&[0, 3, 3])), now);
    }
}
