//! The log for operators: each state once.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::*;

/// Keeps the lines of the client.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    /// The lines of a level since the last look.
    fn take(&self, level: Level) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock().expect("no test panics while it holds the lines"));
        lines.into_iter().filter(|(of, _)| *of == level).map(|(_, text)| text).collect()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a String takes everything");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "xds_client"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let line = (*event.metadata().level(), text.0);
        self.0.lock().expect("no test panics while it holds the lines").push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn logged(test: impl FnOnce(&Lines)) {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || test(&lines));
}

#[track_caller]
fn one_line(lines: &[String], parts: &[&str]) {
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(parts.iter().all(|part| lines[0].contains(part)), "{lines:#?}");
}

#[test]
fn missing_resource_is_warned_of_once() {
    logged(|lines| {
        let mut h = Harness::started(config(), &[(EDS, "e")]);
        h.advance(Duration::from_secs(15));
        one_line(&lines.take(Level::WARN), &["ClusterLoadAssignment e: does not exist", "in_use=false"]);
        // Neither another watcher nor the same on the next stream is a change.
        h.watch(2, EDS, "e");
        h.respond(EDS, "1", &[]);
        h.down();
        h.up();
        h.advance(Duration::from_secs(20));
        assert_eq!(lines.take(Level::WARN), [""; 0]);
    });
}

#[test]
fn deleted_resource_is_warned_of_once() {
    logged(|lines| {
        let features = ServerFeatures { ignore_resource_deletion: true, ..Default::default() };
        for (features, in_use) in [(ServerFeatures::default(), "in_use=false"), (features, "in_use=true")] {
            let mut h = Harness::started(config_with(features, Gates::default()), &[(CDS, "c")]);
            h.respond(CDS, "1", &[cluster("c", "")]);
            h.respond(CDS, "2", &[]);
            h.respond(CDS, "3", &[]);
            one_line(&lines.take(Level::WARN), &["Cluster c: does not exist: deleted by the server", in_use]);
        }
    });
}

#[test]
fn rejected_version_is_warned_of_once_however_often_it_comes() {
    logged(|lines| {
        let mut h = Harness::started(config(), &[(EDS, "e")]);
        for _ in 0..5 {
            h.respond(EDS, "7", &[bad_assignment("e")]);
        }
        one_line(&lines.take(Level::WARN), &["ClusterLoadAssignment response rejected", "(e)", "\"7\""]);
        h.respond(EDS, "8", &[bad_assignment("e")]);
        assert_eq!(lines.take(Level::WARN).len(), 1, "another version is another matter");
        h.respond(EDS, "9", &[assignment("e", 1)]);
        h.respond(EDS, "8", &[bad_assignment("e")]);
        assert_eq!(lines.take(Level::WARN).len(), 1);
    });
}

#[test]
fn an_unreachable_server_is_warned_of_once_and_then_counted() {
    logged(|lines| {
        let mut h = Harness::started(config(), &[(EDS, "e")]);
        for _ in 0..15 {
            h.down();
            // The next attempt, whatever the backoff is.
            h.advance(Duration::from_secs(150));
        }
        let warned = lines.take(Level::WARN);
        let warned: Vec<_> =
            warned.iter().filter(|line| line.contains("failed without a response")).collect();
        assert_eq!(warned.len(), 2, "{warned:#?}");
        assert!(warned[0].contains("repeated=0") && warned[1].contains("repeated=10"), "{warned:#?}");
        h.up();
        h.respond(EDS, "1", &[assignment("e", 1)]);
        one_line(&lines.take(Level::INFO), &["answers again", "repeated=14", "xds.test:1"]);
        // Streams that end after a response are counted, too.
        for version in ["2", "3", "4"] {
            h.restart();
            h.respond(EDS, version, &[assignment("e", 1)]);
        }
        one_line(&lines.take(Level::INFO), &["the ADS stream ended", "repeated=0", "connection refused"]);
    });
}

#[test]
fn responses_are_logged_at_debug() {
    logged(|lines| {
        let mut h = Harness::started(config(), &[(EDS, "e")]);
        lines.take(Level::DEBUG);
        h.respond(EDS, "7", &[assignment("e", 1), assignment("f", 1)]);
        let found = lines.take(Level::DEBUG).into_iter().filter(|line| line.contains("ADS response"));
        let parts = ["ClusterLoadAssignment", "version=\"7\"", "nonce=\"n7\"", "count=2"];
        one_line(&found.collect::<Vec<_>>(), &parts);
    });
}
