//! Times in JSON: numbers of seconds since 1970, for `serde(with)`.

use std::time::{SystemTime, UNIX_EPOCH};

use proxyless_balancer::api::seconds;
use serde::de::Error as _;
use serde::{Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    seconds::serialize(&time.duration_since(UNIX_EPOCH).unwrap_or_default(), serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let since = seconds::deserialize(deserializer)?;
    UNIX_EPOCH.checked_add(since).ok_or_else(|| D::Error::custom("a time out of range"))
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
