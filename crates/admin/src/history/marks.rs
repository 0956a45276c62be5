//! The events of a channel that explain a plot: a line on the time axis.
//!
//! An event is text for people. Its kind follows from the texts of `proxyless`; the test of this crate with a real mesh
//! fails if they change.

use proxyless::inspect::{Event, Severity};
use serde::{Deserialize, Serialize};

/// The kind of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MarkKind {
    /// RPCs go to another priority or leaf cluster.
    Failover,
    /// A resource changed.
    Configuration,
    /// Outlier detection ejected an endpoint, or took it back.
    Ejection,
    /// A connection came or went, or the state of the channel changed.
    Connection,
    /// A rejected or missing resource, a channel in TRANSIENT_FAILURE, a name that does not resolve, a panic.
    Error,
}

impl MarkKind {
    /// The kind of an event; `None` if it explains nothing.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let text = event.description.as_str();
        let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
        if has(&[": failed over from ", ": moved up from "]) {
            return Some(Self::Failover);
        }
        if has(&[": ejected for ", ": back in service after its ejection"]) {
            return Some(Self::Ejection);
        }
        if text.starts_with("new ") && text.ends_with(" in use") || text.ends_with(" is fine again") {
            return Some(Self::Configuration);
        }
        if event.subchannel.is_some() || has(&[": cannot connect: ", ": connection lost: ", ": going away: "])
        {
            // An attempt says less than its outcome.
            let attempt = text.ends_with(": connecting") || text.ends_with(": reconnecting");
            return (!attempt).then_some(Self::Connection);
        }
        if event.severity != Severity::Info || text.starts_with("restarted after a panic") {
            return Some(Self::Error);
        }
        text.starts_with("channel ").then_some(Self::Connection)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(severity: &str, text: &str, subchannel: Option<u64>) -> Option<MarkKind> {
        let event = json!({"time": 0.0, "severity": severity, "description": text, "connection": subchannel});
        MarkKind::of(&serde_json::from_value(event).unwrap())
    }

    #[test]
    fn the_kind_follows_from_the_text() {
        let of = |severity, text| kind(severity, text, None);
        assert_eq!(of("warning", "c: failed over from eu to us"), Some(MarkKind::Failover));
        assert_eq!(of("info", "c: moved up from us to eu"), Some(MarkKind::Failover));
        assert_eq!(of("warning", "1.2.3.4:5: ejected for 3 s: 9 of 9 RPCs failed"), Some(MarkKind::Ejection));
        assert_eq!(of("info", "1.2.3.4:5: back in service after its ejection"), Some(MarkKind::Ejection));
        assert_eq!(of("info", "new Cluster c in use"), Some(MarkKind::Configuration));
        assert_eq!(of("info", "Cluster c is fine again"), Some(MarkKind::Configuration));
        assert_eq!(of("warning", "Cluster c: bad; the last good one stays in use"), Some(MarkKind::Error));
        assert_eq!(of("error", "channel CONNECTING → TRANSIENT_FAILURE"), Some(MarkKind::Error));
        assert_eq!(of("info", "channel CONNECTING → READY"), Some(MarkKind::Connection));
        assert_eq!(of("info", "restarted after a panic (restart 1)"), Some(MarkKind::Error));
        assert_eq!(of("info", "asked for Cluster c"), None);
        assert_eq!(of("info", "host:80 has 3 addresses"), None);
    }

    #[test]
    fn the_outcome_of_a_connection_is_marked_and_not_the_attempt() {
        assert_eq!(kind("info", "1.2.3.4:5: reconnecting", Some(1)), None);
        assert_eq!(kind("info", "1.2.3.4:5: connecting", None), None);
        assert_eq!(kind("info", "1.2.3.4:5: reconnected", Some(1)), Some(MarkKind::Connection));
        // The subchannel is gone.
        let lost = kind("warning", "1.2.3.4:5: connection lost: reset", None);
        assert_eq!(lost, Some(MarkKind::Connection));
    }
}
