//! The interface of exporters.

use std::sync::{Arc, Weak};

use super::{AttemptSeries, Instrument, LabelValue};

/// Creates the series that measurements are recorded in.
///
/// A recorder is asked for a series when its labels become known: when a policy or subchannel is made, or for the first
/// call of a method, or the first one with a status. It is never asked during a pick.
pub trait Recorder: Send + Sync {
    /// Whether the recorder records this instrument. If it does not, nothing is measured for it.
    fn is_enabled(&self, instrument: &'static Instrument) -> bool;

    /// The series of an instrument with these labels, which are the instrument's own and its optional ones, in their
    /// order. The recorder leaves out the optional ones that its user did not ask for (A79). It may be asked for the same
    /// series several times.
    fn series(&self, instrument: &'static Instrument, labels: &[LabelValue]) -> Arc<dyn Series>;

    /// The series that an attempt adds to when it ends, from a recorder that adds to all of them at less cost than to one
    /// after the other. The first labels are those of [`ATTEMPT_DURATION`], [`ATTEMPT_SENT`] and [`ATTEMPT_RECEIVED`], the
    /// others those of [`CALL_DURATION`], if the calls end with these attempts. Returns `None` if attempts are recorded in the
    /// [`series`](Self::series) of each instrument.
    ///
    /// [`ATTEMPT_DURATION`]: super::instruments::ATTEMPT_DURATION
    /// [`ATTEMPT_SENT`]: super::instruments::ATTEMPT_SENT
    /// [`ATTEMPT_RECEIVED`]: super::instruments::ATTEMPT_RECEIVED
    /// [`CALL_DURATION`]: super::instruments::CALL_DURATION
    fn attempts(
        &self,
        _attempt: &[LabelValue],
        _call: Option<&[LabelValue]>,
    ) -> Option<Arc<dyn AttemptSeries>> {
        None
    }

    /// Whether the channels to this target are recorded (A79). Asked once for each channel.
    fn records_channel(&self, _target: &str) -> bool {
        true
    }

    /// A source of gauges. Its values are read when the recorder exports, while the source exists. Several sources may
    /// have a value for the same labels: they are the same fact, and any of them will do.
    fn observe(&self, _source: Weak<dyn GaugeSource>) {}

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

/// Current values of gauges.
pub trait GaugeSource: Send + Sync {
    /// Passes each value with its instrument and the instrument's labels. It may wait a moment for another thread, so it
    /// is not to be called in an asynchronous task.
    fn read(&self, observe: &mut dyn FnMut(&'static Instrument, &[LabelValue], f64));
}
