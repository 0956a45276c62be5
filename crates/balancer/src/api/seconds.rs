//! Durations in JSON: numbers of seconds, for `serde(with)`.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Writes a number of seconds.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Reads a number of seconds.
///
/// # Errors
/// If it is negative or out of range, or those of the deserializer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
}
