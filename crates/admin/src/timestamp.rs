//! Conversion of times to protobuf.

use std::time::{SystemTime, UNIX_EPOCH};

use envoy_types::pb::google::protobuf::Timestamp;

/// A time as a protobuf message. Times before 1970 become 1970.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        // Below 1e9.
        nanos: since.subsec_nanos() as i32,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_and_nanoseconds_since_1970() {
        let at = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
        assert_eq!(timestamp(at), Timestamp { seconds: 1_700_000_000, nanos: 5 });
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), Timestamp::default());
    }
}
