//! Labels as attributes: optional ones only if they are asked for (A79), targets as the user wants them.

use std::collections::BTreeSet;
use std::sync::Arc;

use opentelemetry::KeyValue;
use proxyless::telemetry::{Instrument, Label, LabelValue};

use crate::Filter;

/// The user's choice of labels.
pub(crate) struct Attributes {
    /// The optional labels that are recorded.
    pub(crate) optional: BTreeSet<Label>,
    /// The targets that are recorded; others are `other`.
    pub(crate) targets: Option<Filter>,
}

impl Attributes {
    /// The attributes of a series.
    pub(super) fn of(&self, instrument: &Instrument, labels: &[LabelValue]) -> Vec<KeyValue> {
        to_key_values(self.recorded(instrument, labels))
    }

    /// The labels that are recorded, with the values that are recorded.
    pub(super) fn recorded(&self, instrument: &Instrument, labels: &[LabelValue]) -> Vec<LabelValue> {
        let kept =
            |(label, _): &&LabelValue| instrument.labels.contains(label) || self.optional.contains(label);
        let value = |(label, value): &LabelValue| match label {
            Label::Target => (*label, self.target(value)),
            _ => (*label, Arc::clone(value)),
        };
        labels.iter().filter(kept).map(value).collect()
    }

    fn target(&self, target: &Arc<str>) -> Arc<str> {
        match &self.targets {
            Some(filter) if !filter(target) => "other".into(),
            _ => Arc::clone(target),
        }
    }
}

/// Sorted by key, as the SDK looks them up.
pub(super) fn to_key_values(labels: Vec<LabelValue>) -> Vec<KeyValue> {
    let mut attributes: Vec<_> =
        labels.into_iter().map(|(label, value)| KeyValue::new(label.key(), value)).collect();
    attributes.sort_by(|a, b| a.key.cmp(&b.key));
    attributes
}
