//! The two ejection algorithms of gRFC A50, as a pure function of counts and random numbers.

use std::time::Duration;

use proxyless_sans_io::Rng;

use super::{EjectionSettings, FailurePercentageEjection, SuccessRateEjection};
use crate::api::CallCounts;

/// One endpoint at the end of an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) counts: CallCounts,
    pub(super) ejected: bool,
}

/// The number of outliers that one algorithm has found, by what became of them (gRFC A91).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outliers {
    pub(super) ejected: u64,
    /// Spared by the enforcement percentage.
    pub(super) not_enforced: u64,
    /// Spared because the maximum percentage of endpoints is ejected.
    pub(super) overflow: u64,
}

/// The outliers by algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Detected {
    pub(super) by_success_rate: Outliers,
    pub(super) by_failure_percentage: Outliers,
}

/// Marks the endpoints to eject now by setting `ejected`.
pub(super) fn eject_outliers(config: &EjectionSettings, samples: &mut [Sample], rng: &mut Rng) -> Detected {
    let mut detected = Detected::default();
    if let Some(success_rate) = &config.success_rate_ejection {
        detected.by_success_rate = by_success_rate(success_rate, config.max_ejection_percent, samples, rng);
    }
    if let Some(failure_percentage) = &config.failure_percentage_ejection {
        detected.by_failure_percentage =
            by_failure_percentage(failure_percentage, config.max_ejection_percent, samples, rng);
    }
    detected
}

fn by_success_rate(
    config: &SuccessRateEjection,
    max_percent: u32,
    samples: &mut [Sample],
    rng: &mut Rng,
) -> Outliers {
    let rate = |sample: &Sample| sample.counts.succeeded as f64 / sample.counts.ended() as f64;
    let rates: Vec<f64> =
        samples.iter().filter(|sample| has_volume(sample, config.request_volume)).map(rate).collect();
    // A50: requires a minimum number of endpoints with sufficient volume.
    if rates.is_empty() || rates.len() < config.minimum_hosts as usize {
        return Outliers::default();
    }
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count;
    // A50: the factor is in thousandths.
    let threshold = mean - variance.sqrt() * (f64::from(config.stdev_factor) / 1000.0);
    let is_outlier = |sample: &Sample| has_volume(sample, config.request_volume) && rate(sample) < threshold;
    eject(samples, is_outlier, config.enforcement_percentage, max_percent, rng)
}

fn by_failure_percentage(
    config: &FailurePercentageEjection,
    max_percent: u32,
    samples: &mut [Sample],
    rng: &mut Rng,
) -> Outliers {
    let enough = samples.iter().filter(|sample| has_volume(sample, config.request_volume)).count();
    if enough < config.minimum_hosts as usize {
        return Outliers::default();
    }
    // A50: above the threshold. Integers, so that rounding does not decide.
    let is_outlier = |sample: &Sample| {
        has_volume(sample, config.request_volume)
            && u128::from(sample.counts.failed) * 100
                > u128::from(sample.counts.ended()) * u128::from(config.threshold)
    };
    eject(samples, is_outlier, config.enforcement_percentage, max_percent, rng)
}

fn eject(
    samples: &mut [Sample],
    is_outlier: impl Fn(&Sample) -> bool,
    enforcement_percentage: u32,
    max_percent: u32,
    rng: &mut Rng,
) -> Outliers {
    let mut outliers = Outliers::default();
    let total = samples.len() as u64;
    let mut ejected = samples.iter().filter(|sample| sample.ejected).count() as u64;
    for sample in samples {
        if sample.ejected || !is_outlier(sample) {
            continue;
        }
        // A50: one endpoint may always be ejected; beyond that, none once the percentage is reached.
        if ejected > 0 && ejected * 100 >= total * u64::from(max_percent) {
            outliers.overflow += 1;
        } else if rng.below(100) < u64::from(enforcement_percentage) {
            sample.ejected = true;
            ejected += 1;
            outliers.ejected += 1;
        } else {
            outliers.not_enforced += 1;
        }
    }
    outliers
}

/// A50: only endpoints with sufficient volume are evaluated, and never one without calls.
fn has_volume(sample: &Sample, request_volume: u32) -> bool {
    sample.counts.ended() >= u64::from(request_volume.max(1))
}

/// The duration of the `multiplier`-th ejection in a row.
pub(super) fn ejection_time(config: &EjectionSettings, multiplier: u32) -> Duration {
    // A50: it grows with each ejection, up to the maximum, which is never below the base.
    let longest = config.base_ejection_time.max(config.max_ejection_time);
    config.base_ejection_time.saturating_mul(multiplier).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Successes and failures of endpoints that are not ejected.
    fn samples(counts: &[(u64, u64)]) -> Vec<Sample> {
        let sample =
            |&(succeeded, failed)| Sample { counts: CallCounts { succeeded, failed }, ejected: false };
        counts.iter().map(sample).collect()
    }

    fn ejected(config: &EjectionSettings, mut samples: Vec<Sample>) -> Vec<usize> {
        eject_outliers(config, &mut samples, &mut Rng::new(1));
        (0..).zip(samples).filter(|(_, sample)| sample.ejected).map(|(i, _)| i).collect()
    }

    fn success_rate(change: impl FnOnce(&mut SuccessRateEjection)) -> EjectionSettings {
        let mut config = SuccessRateEjection {
            stdev_factor: 1000,
            enforcement_percentage: 100,
            minimum_hosts: 3,
            request_volume: 10,
        };
        change(&mut config);
        EjectionSettings {
            max_ejection_percent: 100,
            success_rate_ejection: Some(config),
            ..EjectionSettings::default()
        }
    }

    fn failure_percentage(change: impl FnOnce(&mut FailurePercentageEjection)) -> EjectionSettings {
        let mut config = FailurePercentageEjection {
            threshold: 50,
            enforcement_percentage: 100,
            minimum_hosts: 2,
            request_volume: 10,
        };
        change(&mut config);
        EjectionSettings {
            max_ejection_percent: 100,
            failure_percentage_ejection: Some(config),
            ..EjectionSettings::default()
        }
    }

    #[test]
    fn a50_success_rate_ejects_endpoints_far_below_the_mean() {
        let counts = [(100, 0), (98, 2), (100, 0), (40, 60)];
        assert_eq!(ejected(&success_rate(|_| ()), samples(&counts)), [3]);
        // 40 % is 1.7 standard deviations below the mean.
        assert_eq!(ejected(&success_rate(|c| c.stdev_factor = 1700), samples(&counts)), [3]);
        assert!(ejected(&success_rate(|c| c.stdev_factor = 1800), samples(&counts)).is_empty());
    }

    #[test]
    fn a50_success_rate_of_equals_ejects_nobody() {
        assert!(ejected(&success_rate(|_| ()), samples(&[(0, 100), (0, 100), (0, 100)])).is_empty());
        assert!(ejected(&success_rate(|_| ()), samples(&[(100, 0), (100, 0), (100, 0)])).is_empty());
    }

    #[test]
    fn a50_success_rate_needs_enough_endpoints_with_enough_requests() {
        let counts = [(10, 0), (10, 0), (0, 10)];
        assert_eq!(ejected(&success_rate(|_| ()), samples(&counts)), [2]);
        assert!(ejected(&success_rate(|c| c.minimum_hosts = 4), samples(&counts)).is_empty());
        assert!(ejected(&success_rate(|c| c.request_volume = 11), samples(&counts)).is_empty());
        // An endpoint below the volume is neither counted nor evaluated.
        let counts = [(10, 0), (10, 0), (9, 1), (0, 9)];
        assert_eq!(ejected(&success_rate(|_| ()), samples(&counts)), [2]);
        assert!(ejected(&success_rate(|c| c.minimum_hosts = 0), samples(&[(0, 0)])).is_empty());
    }

    #[test]
    fn a50_failure_percentage_ejects_endpoints_above_the_threshold() {
        let counts = [(10, 0), (5, 5), (4, 6), (0, 10)];
        assert_eq!(ejected(&failure_percentage(|_| ()), samples(&counts)), [2, 3]);
        assert!(ejected(&failure_percentage(|c| c.threshold = 100), samples(&counts)).is_empty());
        assert_eq!(ejected(&failure_percentage(|c| c.threshold = 0), samples(&counts)), [1, 2, 3]);
    }

    #[test]
    fn a50_failure_percentage_needs_enough_endpoints_with_enough_requests() {
        let counts = [(10, 0), (0, 10), (0, 9)];
        assert_eq!(ejected(&failure_percentage(|_| ()), samples(&counts)), [1]);
        assert!(ejected(&failure_percentage(|c| c.minimum_hosts = 3), samples(&counts)).is_empty());
    }

    #[test]
    fn a50_max_ejection_percent_stops_but_lets_one_go() {
        let config =
            |percent| EjectionSettings { max_ejection_percent: percent, ..failure_percentage(|_| ()) };
        let failing = || samples(&[(0, 10); 4]);
        assert_eq!(ejected(&config(0), failing()), [0], "at least one");
        assert_eq!(ejected(&config(25), failing()), [0]);
        assert_eq!(ejected(&config(50), failing()), [0, 1]);
        assert_eq!(ejected(&config(100), failing()), [0, 1, 2, 3]);
        let mut with_one = failing();
        with_one[3].ejected = true;
        assert_eq!(ejected(&config(25), with_one), [3], "those of before count");
    }

    #[test]
    fn a91_outliers_are_counted_by_what_became_of_them() {
        let found = |config: &EjectionSettings, counts: &[(u64, u64)]| {
            eject_outliers(config, &mut samples(counts), &mut Rng::new(1)).by_failure_percentage
        };
        let failing = [(0, 10), (0, 10), (0, 10), (10, 0)];
        let quarter = EjectionSettings { max_ejection_percent: 25, ..failure_percentage(|_| ()) };
        assert_eq!(found(&quarter, &failing), Outliers { ejected: 1, not_enforced: 0, overflow: 2 });
        let never = failure_percentage(|c| c.enforcement_percentage = 0);
        assert_eq!(found(&never, &failing), Outliers { ejected: 0, not_enforced: 3, overflow: 0 });
        assert_eq!(found(&quarter, &[(10, 0); 4]), Outliers::default());
    }

    #[test]
    fn a50_both_algorithms_share_the_limit() {
        let both = EjectionSettings {
            max_ejection_percent: 25,
            failure_percentage_ejection: failure_percentage(|_| ()).failure_percentage_ejection,
            ..success_rate(|_| ())
        };
        assert_eq!(ejected(&both, samples(&[(0, 10), (10, 0), (10, 0), (0, 10)])).len(), 1);
    }

    #[test]
    fn a50_enforcement_is_a_chance() {
        let half = failure_percentage(|c| c.enforcement_percentage = 50);
        let count = ejected(&half, samples(&[(0, 10); 1000])).len();
        assert!((420..580).contains(&count), "{count}");
        assert!(
            ejected(&failure_percentage(|c| c.enforcement_percentage = 0), samples(&[(0, 10); 9])).is_empty()
        );
    }
}
