//! The interface of exporters.

use std::sync::Arc;

use super::{Instrument, LabelValue};

/// Creates the series that measurements are recorded in.
///
/// A recorder is asked for a series when its labels become known: when a policy or subchannel is made, or for the first
/// call of a method, or the first one with a status. It is never asked during a pick.
pub trait Recorder: Send + Sync {
    /// Whether the recorder records this instrument. If it does not, nothing is measured for it.
    fn is_enabled(&self, instrument: &'static Instrument) -> bool;

    /// The series of an instrument with these labels, which are the instrument's own and its optional ones, in their
    /// order. The recorder leaves out the optional ones that its user did not ask for (A79).
    fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series>;

    /// Whether the name of a generic method is recorded instead of `other` (A66). Methods of generated clients are not
    /// asked for.
    fn records_generic_method(&self, _method: &str) -> bool {
        false
    }
}

/// A series of an instrument: the values with one set of labels. Recording runs on the data path.
pub trait Series: Send + Sync {
    /// Adds to a counter, or a value to a distribution.
    fn record(&self, value: f64);
}
