//! The events of a channel that explain a plot: a line on the time axis.

use proxyless::inspect::{Event, EventKind, Severity};
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
        match event.kind {
            EventKind::Failover => Some(Self::Failover),
            EventKind::Ejection => Some(Self::Ejection),
            EventKind::Configuration if event.severity == Severity::Info => Some(Self::Configuration),
            EventKind::State if event.severity == Severity::Info => Some(Self::Connection),
            EventKind::Connection => Some(Self::Connection),
            // It says less than its outcome.
            EventKind::ConnectionAttempt => None,
            EventKind::Panic => Some(Self::Error),
            _ => (event.severity != Severity::Info).then_some(Self::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mark(severity: &str, kind: &str) -> Option<MarkKind> {
        let event = json!({"time": 0.0, "severity": severity, "kind": kind, "description": "x"});
        MarkKind::of(&serde_json::from_value(event).unwrap())
    }

    #[test]
    fn marks_are_the_events_that_explain_a_plot() {
        assert_eq!(mark("warning", "failover"), Some(MarkKind::Failover));
        assert_eq!(mark("info", "failover"), Some(MarkKind::Failover));
        assert_eq!(mark("warning", "ejection"), Some(MarkKind::Ejection));
        assert_eq!(mark("info", "configuration"), Some(MarkKind::Configuration));
        assert_eq!(mark("warning", "configuration"), Some(MarkKind::Error));
        assert_eq!(mark("error", "state"), Some(MarkKind::Error));
        assert_eq!(mark("info", "state"), Some(MarkKind::Connection));
        assert_eq!(mark("info", "panic"), Some(MarkKind::Error));
        assert_eq!(mark("warning", "dns"), Some(MarkKind::Error));
        assert_eq!(mark("info", "subscription"), None);
        assert_eq!(mark("info", "dns"), None);
        assert_eq!(mark("info", "a kind of a later version"), None);
    }

    #[test]
    fn the_outcome_of_a_connection_is_marked_and_not_the_attempt() {
        assert_eq!(mark("info", "connection_attempt"), None);
        assert_eq!(mark("info", "connection"), Some(MarkKind::Connection));
        assert_eq!(mark("warning", "connection"), Some(MarkKind::Connection));
    }
}
