//! The order of picks: static stride scheduling, which needs no state but a sequence number.
//!
//! Every endpoint has a turn in each round of the sequence, and uses the fraction of its turns that its weight is of the
//! largest weight, evenly spread: a turn is used if the multiple of the weight passes a multiple of the largest one.

/// The weight of the heaviest endpoint; the others are in proportion.
const FULL: u64 = u16::MAX as u64;

/// A weight counts at most this many times the mean, so that a wrong report does not take all RPCs.
const MAX_RATIO: f64 = 10.0;

/// A weight counts at least this fraction of the mean, so that each endpoint reports again soon.
const MIN_RATIO: f64 = 0.1;

/// A weight of each endpoint, up to [`FULL`]. Without weights endpoints have equal turns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scheduler(Option<Box<[u16]>>);

impl Scheduler {
    /// A scheduler for these weights; 0 if an endpoint has none.
    pub(super) fn new(weights: &[f64]) -> Self {
        let known: Vec<f64> = weights.iter().copied().filter(|weight| *weight > 0.0).collect();
        // A58-12: with fewer than two weights it is round robin.
        if known.len() < 2 {
            return Self(None);
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let largest = known.iter().copied().fold(0.0, f64::max).min(mean * MAX_RATIO);
        let scaled = |weight: f64| {
            // A58-11: endpoints without a weight have the mean.
            let weight = if weight > 0.0 { weight } else { mean };
            let part = weight.clamp(mean * MIN_RATIO, largest.max(mean * MIN_RATIO)) / largest;
            (part * FULL as f64).round().clamp(1.0, FULL as f64) as u16
        };
        Self(Some(weights.iter().map(|&weight| scaled(weight)).collect()))
    }

    /// The endpoint of the next turn that is used, of `count` endpoints. There is one: the heaviest uses all its turns.
    pub(super) fn pick(&self, count: usize, mut next_turn: impl FnMut() -> u64) -> Option<usize> {
        let count = u64::try_from(count).ok().filter(|&count| count > 0)?;
        loop {
            let turn = next_turn();
            let (round, at) = (turn / count, turn % count);
            let index = usize::try_from(at).ok()?;
            let Some(weights) = &self.0 else { return Some(index) };
            let weight = u64::from(*weights.get(index)?);
            // Every second endpoint is half a stride ahead, so that equal ones do not skip the same rounds.
            let offset = at * (FULL / 2);
            if round.wrapping_mul(weight).wrapping_add(offset) % FULL >= FULL - weight {
                return Some(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: &[f64], picks: usize) -> Vec<f64> {
        let scheduler = Scheduler::new(weights);
        let mut turn = 12_345;
        let mut hits = vec![0; weights.len()];
        for _ in 0..picks {
            let picked = scheduler.pick(weights.len(), || {
                turn += 1;
                turn
            });
            hits[picked.unwrap()] += 1;
        }
        hits.into_iter().map(|hits| f64::from(hits) / picks as f64).collect()
    }

    #[track_caller]
    fn check(weights: &[f64], expected: &[f64]) {
        let found = shares(weights, 10_000);
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.005);
        assert!(close, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn a58_09_endpoints_are_picked_by_weight() {
        check(&[1.0, 2.0, 3.0, 4.0], &[0.1, 0.2, 0.3, 0.4]);
        check(&[500.0, 125.0], &[0.8, 0.2]);
        check(&[1e-300, 3e-300], &[0.25, 0.75]);
        check(&[1e300, 3e300], &[0.25, 0.75]);
    }

    #[test]
    fn a58_11_endpoints_without_a_weight_have_the_mean() {
        check(&[500.0, 125.0, 0.0], &[0.533, 0.133, 0.333]);
    }

    #[test]
    fn a58_12_with_fewer_than_two_weights_it_is_round_robin() {
        for weights in [&[0.0, 0.0, 0.0][..], &[7.0, 0.0, 0.0]] {
            let scheduler = Scheduler::new(weights);
            let mut turn = 0;
            let mut pick = || {
                scheduler.pick(3, || {
                    turn += 1;
                    turn - 1
                })
            };
            assert_eq!([pick(), pick(), pick(), pick()], [Some(0), Some(1), Some(2), Some(0)]);
        }
        assert_eq!(Scheduler::new(&[]).pick(0, || 0), None);
        assert_eq!(Scheduler::new(&[5.0]).pick(1, || 9), Some(0));
    }

    #[test]
    fn extreme_weights_are_limited_to_ten_times_and_a_tenth_of_the_mean() {
        let mut weights = vec![1.0; 100];
        weights[0] = 1e9;
        let found = shares(&weights, 100_000);
        // The mean is 1e7: the first has 1e8, the others 1e6.
        assert!((found[0] - 100.0 / 199.0).abs() < 0.01, "{}", found[0]);
        assert!(found[1..].iter().all(|share| (share - 1.0 / 199.0).abs() < 0.001));
    }

    #[test]
    fn a58_10_each_endpoint_is_picked_at_regular_intervals() {
        let scheduler = Scheduler::new(&[1.0, 3.0]);
        let mut turn = 0;
        let mut since = 0;
        for _ in 0..1_000 {
            let picked = scheduler.pick(2, || {
                turn += 1;
                turn
            });
            since = if picked == Some(0) { 0 } else { since + 1 };
            assert!(since <= 4, "{since} picks without the lighter one");
        }
    }

    #[test]
    fn every_turn_of_the_sequence_is_valid() {
        let scheduler = Scheduler::new(&[1.0, 1.0, 9.0]);
        for start in [0, (1 << 40) - 1, 1 << 47, u64::MAX - 1_000] {
            let mut turn = start;
            for _ in 0..100 {
                let picked = scheduler.pick(3, || {
                    turn += 1;
                    turn
                });
                assert!(picked.is_some());
            }
        }
    }
}
