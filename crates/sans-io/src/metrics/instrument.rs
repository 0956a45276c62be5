//! The description of an instrument.

use super::{Label, instruments};

/// An instrument of gRPC's metrics. All of them are in [`instruments::ALL`].
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct Instrument {
    /// The name, with dots.
    pub name: &'static str,
    /// A human-readable description.
    pub description: &'static str,
    /// The unit, as OpenTelemetry writes it: `s`, `By`, `{call}`.
    pub unit: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The labels that every recorder keeps.
    pub labels: &'static [Label],
    /// The labels that a recorder keeps only if the user asks for them (A79).
    pub optional_labels: &'static [Label],
    /// Whether recorders record it if the user does not say (A79).
    pub default: Default,
}

/// The kind of an instrument.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// A sum of increments that are not negative.
    Counter,
    /// A sum of increments of any sign.
    UpDownCounter,
    /// A distribution, with the bounds of its buckets.
    Histogram(&'static [f64]),
    /// A current value, which recorders read from a [`GaugeSource`](super::GaugeSource) when they export.
    Gauge,
}

/// Whether an instrument is recorded if the user does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// It is: the instrument is stable.
    On,
    /// It is not: A79 has experimental instruments off.
    Off,
}

impl Instrument {
    /// The position in [`instruments::ALL`], for tables.
    #[must_use]
    pub fn index(&'static self) -> usize {
        // Every instrument is a constant of the catalogue.
        instruments::ALL.iter().position(|other| std::ptr::eq(*other, self)).unwrap_or(0)
    }

    /// The instrument with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        instruments::ALL.iter().find(|instrument| instrument.name == name).copied()
    }
}
