//! The results: every sample, by measure and contestant.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::field::Contestant;

/// All samples, by round, so that ratios compare neighbours in time.
#[derive(Default)]
pub(crate) struct Results {
    /// The round of samples that are added; the first is 1.
    pub(crate) round: usize,
    measures: BTreeMap<String, Measure>,
    /// Contestants that could not take part, with the reason.
    pub(crate) missing: BTreeMap<Contestant, String>,
    /// Measures that failed although the contestant was available.
    pub(crate) failures: Vec<String>,
}

/// The samples of one measure.
pub(crate) struct Measure {
    pub(crate) unit: String,
    pub(crate) samples: BTreeMap<Contestant, BTreeMap<usize, f64>>,
}

/// Median and spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Results {
    pub(crate) fn add(&mut self, measure: &str, unit: &str, contestant: Contestant, value: f64) {
        let measure = self
            .measures
            .entry(measure.to_owned())
            .or_insert_with(|| Measure { unit: unit.to_owned(), samples: BTreeMap::new() });
        measure.samples.entry(contestant).or_default().insert(self.round, value);
    }

    /// Adds earlier results of measures that are missing here.
    pub(crate) fn keep(&mut self, earlier: &Value) {
        for (name, measure) in earlier["measures"].as_object().into_iter().flatten() {
            if self.measures.contains_key(name) {
                continue;
            }
            for (who, values) in measure["samples"].as_object().into_iter().flatten() {
                let Some(who) = Contestant::ALL.into_iter().find(|contestant| contestant.name() == who)
                else {
                    continue;
                };
                for (round, value) in values.as_object().into_iter().flatten() {
                    self.round = round.parse().unwrap_or_default();
                    // JSON has no infinity.
                    let value = value.as_f64().unwrap_or(f64::INFINITY);
                    self.add(name, measure["unit"].as_str().unwrap_or_default(), who, value);
                }
            }
        }
        let failures = earlier["failures"].as_array().into_iter().flatten();
        for failure in failures.filter_map(Value::as_str) {
            self.fail(failure);
        }
    }

    /// Records a failure, once for each that begins with the same text up to its reason.
    pub(crate) fn fail(&mut self, text: &str) {
        let short: String = text.chars().take(200).collect();
        let begins = |text: &str| text.split(": ").take(2).collect::<Vec<_>>().join(": ");
        if !self.failures.iter().any(|known| begins(known) == begins(&short)) {
            self.failures.push(short);
        }
    }

    /// The measures with this prefix.
    pub(crate) fn measures(&self, prefix: &str) -> impl Iterator<Item = (&str, &Measure)> {
        let found = self.measures.range(prefix.to_owned()..);
        let prefix = prefix.to_owned();
        found
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .map(|(name, measure)| (name.as_str(), measure))
    }

    pub(crate) fn summary(&self, measure: &str, of: Contestant) -> Option<Summary> {
        Summary::of(self.samples(measure, of)?.values().copied())
    }

    /// The ratio of two contestants, round by round.
    pub(crate) fn ratio(&self, measure: &str, of: Contestant, to: Contestant) -> Option<Summary> {
        ratio(self.samples(measure, of)?, self.samples(measure, to)?)
    }

    fn samples(&self, measure: &str, of: Contestant) -> Option<&BTreeMap<usize, f64>> {
        self.measures.get(measure)?.samples.get(&of)
    }

    pub(crate) fn to_json(&self) -> Value {
        let measures = self.measures.iter().map(|(name, measure)| {
            let samples =
                measure.samples.iter().map(|(who, samples)| (who.name().to_owned(), json!(samples)));
            let samples: serde_json::Map<_, _> = samples.collect();
            (name.clone(), json!({ "unit": measure.unit, "samples": samples }))
        });
        let missing = self.missing.iter().map(|(who, why)| (who.name().to_owned(), json!(why)));
        json!({
            "measures": measures.collect::<serde_json::Map<_, _>>(),
            "missing": missing.collect::<serde_json::Map<_, _>>(),
            "failures": self.failures,
        })
    }
}

/// The ratio of the samples of each round that has both.
fn ratio(of: &BTreeMap<usize, f64>, to: &BTreeMap<usize, f64>) -> Option<Summary> {
    let pairs = of.iter().filter_map(|(round, of)| Some((*of, *to.get(round)?)));
    // Also if both are zero or infinite.
    Summary::of(pairs.map(|(of, to)| if of == to { 1.0 } else { of / to }))
}

impl Summary {
    pub(crate) fn of(samples: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.filter(|sample| !sample.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted.get(middle - 1)? + sorted.get(middle)?) / 2.0,
            _ => *sorted.get(middle)?,
        };
        Some(Self { median, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_results_fill_gaps_and_replace_nothing() {
        let mut earlier = Results::default();
        earlier.add("a", "ms", Contestant::Proxyless, 1.0);
        earlier.add("b", "ms", Contestant::CCore, f64::INFINITY);
        earlier.fail("start: C-core: because of 1");
        let mut results = Results::default();
        results.add("a", "ms", Contestant::Proxyless, 2.0);
        results.fail("start: C-core: because of 2");
        results.keep(&earlier.to_json());
        assert_eq!(results.summary("a", Contestant::Proxyless).unwrap().median, 2.0);
        assert_eq!(results.summary("b", Contestant::CCore).unwrap().median, f64::INFINITY);
        assert_eq!(results.failures, ["start: C-core: because of 2"]);
    }

    #[test]
    fn ratios_compare_the_same_round() {
        let mut results = Results::default();
        for (ours, theirs) in [(1.0, Some(2.0)), (7.0, None), (10.0, Some(20.0)), (3.0, Some(2.0))] {
            results.round += 1;
            results.add("m", "us", Contestant::Proxyless, ours);
            if let Some(theirs) = theirs {
                results.add("m", "us", Contestant::CCore, theirs);
            }
        }
        let ratio = results.ratio("m", Contestant::Proxyless, Contestant::CCore);
        assert_eq!(ratio, Some(Summary { median: 0.5, least: 0.5, most: 1.5 }));
        assert_eq!(results.ratio("m", Contestant::Proxyless, Contestant::Envoy), None);
    }
}
