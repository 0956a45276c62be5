//! gRPC's standard metrics: the instruments, and the seam between the code that measures and the code that exports.
//!
//! [`instruments`] is the catalogue (gRFCs A66, A78, A89, A91, A94, A96). A [`Meter`] belongs to one channel: cores and the
//! call path bind a [`Series`] for the label values that they know, when they learn them, and record into it later. A
//! [`Recorder`] (OpenTelemetry, the store behind `/metrics`) creates the series. Without recorders nothing is bound:
//! every [`BoundSeries`] is empty, and recording is a test of an empty list. Gauges are not recorded but read: a
//! [`GaugeSource`] has their current values.

mod attempts;
mod batches;
mod instrument;
pub mod instruments;
mod label;
mod meter;
mod place;
mod recorder;

pub use attempts::{AttemptSeries, BoundAttempts, EndedAttempt};
pub use batches::Batches;
pub use instrument::{Default, Instrument, Kind};
pub use label::{Label, LabelValue};
pub use meter::{BoundSeries, Meter};
pub use place::PlaceId;
pub use recorder::{GaugeSource, Recorder, Series};
