//! Times in JSON: numbers of seconds.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serializer};

/// For `serde(with)` on a `Duration`.
pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// For `serde(with)` on a `Duration`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
}

/// For `serde(with)` on a `SystemTime`: seconds since 1970.
pub(super) mod since_1970 {
    use std::time::{SystemTime, UNIX_EPOCH};

    use serde::{Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
        super::serialize(&time.duration_since(UNIX_EPOCH).unwrap_or_default(), to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let since = super::deserialize(from)?;
        UNIX_EPOCH.checked_add(since).ok_or_else(|| serde::de::Error::custom("a time out of range"))
    }
}

#[cfg(test)]
mod tests {
    use crate::inspect::ProcessView;

    #[test]
    fn times_are_numbers_of_seconds() {
        let json = r#"{"name":"shop","pid":7,"version":"1","started":1700000000.5,"uptime":0.25}"#;
        let process: ProcessView = serde_json::from_str(json).unwrap();
        assert_eq!(process.uptime.as_millis(), 250);
        assert_eq!(serde_json::to_string(&process).unwrap(), json);
        for bad in ["-1", "1e300", "null"] {
            let json = json.replace("0.25", bad);
            assert!(serde_json::from_str::<ProcessView>(&json).is_err(), "{json}");
        }
    }
}
