//! The results of one machine as they are kept in `benches/results`: medians, with the minimum and maximum of all rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::field::Contestant;
use crate::machine::{self, Machine};
use crate::results::{Results, Summary};

/// The contestants whose ratios are kept, round by round.
const BASELINES: [Contestant; 2] = [Contestant::BareHyper, Contestant::Proxyless];

/// The results of one machine.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Digest {
    pub(crate) machine: String,
    /// `None` for results that were put together by hand.
    pub(crate) date: Option<String>,
    /// The rounds of most measures.
    pub(crate) rounds: Option<usize>,
    pub(crate) versions: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    pub(crate) missing: BTreeMap<Contestant, String>,
    pub(crate) failures: Vec<String>,
    measures: BTreeMap<String, Measure>,
}

/// A measure of all contestants.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) unit: String,
    pub(crate) cells: BTreeMap<Contestant, Cell>,
}

/// A measure of one contestant.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Spread>,
    /// The ratios to baselines in the same round.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ratios: BTreeMap<Contestant, Spread>,
}

/// A median, a range, or both. In JSON a list of one, two or three numbers; `null` is infinite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Option<f64>>", into = "Vec<Option<f64>>")]
pub(crate) struct Spread {
    pub(crate) median: Option<f64>,
    /// The minimum and the maximum.
    pub(crate) range: Option<(f64, f64)>,
}

impl Digest {
    pub(crate) fn of(results: &Results, rounds: usize) -> Self {
        let Machine { description, date, versions } = machine::describe();
        let measures = results.measures("").map(|(name, measure)| {
            let cells = measure.samples.keys().map(|who| {
                let others = BASELINES.into_iter().filter(|to| to != who);
                let ratio = |to| Some((to, results.ratio(name, *who, to)?.into()));
                let value = results.summary(name, *who).map(Spread::from);
                (*who, Cell { value, ratios: others.filter_map(ratio).collect() })
            });
            (name.to_owned(), Measure { unit: measure.unit.clone(), cells: cells.collect() })
        });
        Self {
            machine: description,
            date: Some(date),
            rounds: Some(rounds),
            versions,
            notes: Vec::new(),
            missing: results.missing.clone(),
            failures: results.failures.clone(),
            measures: measures.collect(),
        }
    }

    /// The measures with this prefix.
    pub(crate) fn measures<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Measure)> {
        let found = self.measures.range(prefix.to_owned()..);
        found
            .take_while(move |(name, _)| name.starts_with(prefix))
            .map(|(name, measure)| (name.as_str(), measure))
    }

    pub(crate) fn unit(&self, measure: &str) -> &str {
        self.measures.get(measure).map_or("", |measure| &measure.unit)
    }

    pub(crate) fn value(&self, measure: &str, of: Contestant) -> Option<Spread> {
        self.cell(measure, of)?.value
    }

    /// The ratio of two contestants: round by round if it is known, or else of the medians.
    pub(crate) fn ratio(&self, measure: &str, of: Contestant, to: Contestant) -> Option<Spread> {
        let known = |of, to: Contestant| self.cell(measure, of)?.ratios.get(&to).copied();
        let medians = || {
            let (of, to) = (self.value(measure, of)?.median?, self.value(measure, to)?.median?);
            Some(Spread { median: Some(of / to), range: None })
        };
        known(of, to).or_else(|| known(to, of).map(Spread::inverse)).or_else(medians)
    }

    fn cell(&self, measure: &str, of: Contestant) -> Option<&Cell> {
        self.measures.get(measure)?.cells.get(&of)
    }
}

impl Spread {
    fn inverse(self) -> Self {
        let range = self.range.map(|(least, most)| (1.0 / most, 1.0 / least));
        Self { median: self.median.map(|median| 1.0 / median), range }
    }

    /// As text: the median with its unit, and the range behind it.
    pub(crate) fn text(self, number: impl Fn(f64) -> String, unit: &str) -> String {
        match (self.median, self.range) {
            (Some(median), Some((least, most))) => {
                format!("{}{unit} ({}–{})", number(median), number(least), number(most))
            }
            (Some(median), None) => format!("{}{unit}", number(median)),
            (None, Some((least, most))) => format!("{}–{}{unit}", number(least), number(most)),
            (None, None) => "–".into(),
        }
    }
}

impl From<Summary> for Spread {
    fn from(Summary { median, least, most }: Summary) -> Self {
        Self { median: Some(median), range: Some((least, most)) }
    }
}

impl From<Spread> for Vec<Option<f64>> {
    fn from(Spread { median, range }: Spread) -> Self {
        let numbers = [median, range.map(|(least, _)| least), range.map(|(_, most)| most)];
        numbers.into_iter().flatten().map(|number| number.is_finite().then(|| short(number))).collect()
    }
}

impl TryFrom<Vec<Option<f64>>> for Spread {
    type Error = String;

    fn try_from(numbers: Vec<Option<f64>>) -> Result<Self, String> {
        let numbers: Vec<f64> = numbers.into_iter().map(|number| number.unwrap_or(f64::INFINITY)).collect();
        match *numbers {
            [median] => Ok(Self { median: Some(median), range: None }),
            [least, most] => Ok(Self { median: None, range: Some((least, most)) }),
            [median, least, most] => Ok(Self { median: Some(median), range: Some((least, most)) }),
            _ => Err(format!("a spread is one to three numbers, not {}", numbers.len())),
        }
    }
}

/// Four significant digits.
fn short(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Contestant::{BareHyper, CCore, GrpcGo, Proxyless};

    #[test]
    fn a_digest_keeps_values_and_ratios() {
        let mut results = Results::default();
        for (round, ours, theirs) in [(1, 10.0, 20.0), (2, 30.0, 30.0), (3, 12.0, f64::INFINITY)] {
            results.round = round;
            results.add("m", "us", Proxyless, ours);
            results.add("m", "us", GrpcGo, theirs);
        }
        let json = serde_json::to_string(&Digest::of(&results, 3)).unwrap();
        let digest: Digest = serde_json::from_str(&json).unwrap();
        assert_eq!(
            digest.value("m", GrpcGo),
            Some(Spread { median: Some(30.0), range: Some((20.0, f64::INFINITY)) })
        );
        assert_eq!(
            digest.ratio("m", Proxyless, GrpcGo),
            Some(Spread { median: Some(0.5), range: Some((0.0, 1.0)) })
        );
        assert_eq!(digest.ratio("m", Proxyless, CCore), None);
    }

    #[test]
    fn results_by_hand_may_have_gaps() {
        let json = r#"{"measures": {"m": {"unit": "us", "cells":
            {"proxyless": {"value": [3.0], "ratios": {"bare hyper": [0.9, 1.1]}}, "C-core": {"value": [2.0]}}}}}"#;
        let digest: Digest = serde_json::from_str(json).unwrap();
        let text =
            |to| digest.ratio("m", Proxyless, to).map(|ratio| ratio.text(|number| number.to_string(), "x"));
        assert_eq!(text(BareHyper).as_deref(), Some("0.9–1.1x"));
        assert_eq!(text(CCore).as_deref(), Some("1.5x"));
    }
}
