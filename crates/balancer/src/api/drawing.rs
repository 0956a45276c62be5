//! A drawing of the tree as lines of text.

use std::fmt::{self, Write as _};

use super::change::without_address;
use super::fields::Plain;
use super::{ChildPolicyView, EndpointView, PolicyView, StateChange};

/// One line of a drawing. When a long text is wrapped, `hang` prefixes the continuation lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// The branches that lead to the text.
    pub branch: String,
    /// The branches beside continuation lines.
    pub hang: String,
    /// The text.
    pub text: String,
}

impl Line {
    /// A line without branches, whose continuation lines start with `hang`.
    #[must_use]
    pub fn hanging(hang: &str, text: String) -> Self {
        Self { branch: String::new(), hang: hang.to_owned(), text }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.branch, self.text)
    }
}

impl fmt::Display for PolicyView {
    /// The tree as indented lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl PolicyView {
    /// The tree as indented lines.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut drawing = Drawing::default();
        drawing.push("", "", self.text(None));
        drawing.below(self, "");
        drawing.lines
    }

    /// The text of this node, without its descendants. Facts that also hold for the parent are omitted.
    fn text(&self, above: Option<&Self>) -> String {
        let policy = self.policy.strip_suffix("_experimental").unwrap_or(&self.policy);
        let mut text = format!("{policy} {}", self.state);
        if let Some(StateChange { age, reason, .. }) = &self.changed
            && above.is_none_or(|above| above.changed != self.changed)
        {
            // Writing to a string does not fail.
            let _ = write!(text, " for {} ({reason})", Age(age.as_secs_f64()));
        }
        text
    }

    fn numbers(&self, text: &mut String) {
        let config = self.config.iter().map(|(name, value)| (name, Plain(value).to_string()));
        let counters = self.counters.iter().map(|(name, value)| (name.as_str(), value.to_string()));
        for (name, value) in config.chain(counters) {
            let _ = write!(text, " {name}={value}");
        }
    }
}

impl ChildPolicyView {
    fn text(&self, above: &PolicyView) -> String {
        // Siblings are compared side by side, so each is complete.
        let above = self.name.is_empty().then_some(above);
        let mut text = String::new();
        if !self.name.is_empty() {
            let _ = write!(text, "{}: ", self.name);
        }
        text += &self.node.text(above);
        if let Some(role) = &self.role {
            let _ = write!(text, " [{role}]");
        }
        if let Some(weight) = self.weight {
            let _ = write!(text, " weight={weight}");
        }
        text
    }
}

#[derive(Default)]
struct Drawing {
    lines: Vec<Line>,
}

impl Drawing {
    fn push(&mut self, branch: &str, hang: &str, text: String) {
        self.lines.push(Line { branch: branch.to_owned(), hang: hang.to_owned(), text });
    }

    /// The lines below a node whose own line was just drawn.
    fn below(&mut self, node: &PolicyView, indent: &str) {
        let parts = node.children.len() + node.endpoints.len();
        let bar = if parts > 0 { "│" } else { " " };
        if let Some(line) = self.lines.last_mut() {
            node.numbers(&mut line.text);
            line.hang = format!("{indent}{bar}    ");
        }
        let error = node.error.iter().map(|error| format!("error: {error}"));
        let note = node.resolution_note.iter().map(|note| format!("note: {note}"));
        let details = node.details.iter().map(ToString::to_string);
        let said: Vec<String> = error.chain(note).chain(details).collect();
        for (at, text) in said.iter().enumerate() {
            let branch = if parts == 0 && at + 1 == said.len() { "└·" } else { "├·" };
            self.push(&format!("{indent}{branch} "), &format!("{indent}{bar}    "), text.clone());
        }
        let branch = |at: usize| if at + 1 == parts { ("└─", "   ") } else { ("├─", "│  ") };
        for (at, child) in node.children.iter().enumerate() {
            let (branch, more) = branch(at);
            let more = format!("{indent}{more}");
            self.push(&format!("{indent}{branch} "), &more, child.text(node));
            self.below(&child.node, &more);
        }
        for (at, endpoint) in node.endpoints.iter().enumerate() {
            let (branch, more) = branch(node.children.len() + at);
            self.push(&format!("{indent}{branch} "), &format!("{indent}{more}  "), endpoint.to_string());
        }
    }
}

impl fmt::Display for EndpointView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
        }
        write!(f, " {} ok={} failed={}", self.state, self.calls.succeeded, self.calls.failed)?;
        if self.weight != 1 {
            write!(f, " weight={}", self.weight)?;
        }
        if let Some(connections) = self.connections {
            write!(f, " connections={connections}")?;
        }
        if let Some(proxy) = self.proxy {
            write!(f, " through {proxy}")?;
        }
        for text in [&self.health, &self.hostname, &self.security].into_iter().flatten() {
            write!(f, " {text}")?;
        }
        match &self.error {
            // The address is shown already.
            Some(error) => write!(f, " error: {}", without_address(error)),
            None => Ok(()),
        }
    }
}

/// A number of seconds in a suitable unit.
struct Age(f64);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds if seconds < 10.0 => write!(f, "{seconds:.1} s"),
            seconds if seconds < 120.0 => write!(f, "{seconds:.0} s"),
            seconds if seconds < 7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            seconds => write!(f, "{:.0} h", seconds / 3600.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::{CallCounts, ConnectivityState, Detail, Fields};

    fn tree() -> PolicyView {
        let endpoint = EndpointView {
            addresses: vec!["127.0.0.1:1".parse().unwrap()],
            state: ConnectivityState::Ready,
            weight: 1,
            calls: CallCounts { succeeded: 3, failed: 1 },
            ..EndpointView::default()
        };
        let failed = EndpointView {
            addresses: vec!["127.0.0.1:2".parse().unwrap(), "[::1]:2".parse().unwrap()],
            proxy: Some("127.0.0.1:3128".parse().unwrap()),
            state: ConnectivityState::TransientFailure,
            weight: 5,
            error: Some("ipv4:127.0.0.1:2: refused".into()),
            ..EndpointView::default()
        };
        let changed = StateChange {
            age: Duration::from_millis(3210),
            from: ConnectivityState::Connecting,
            reason: "connected".into(),
        };
        let leaf = PolicyView {
            policy: "round_robin".into(),
            state: ConnectivityState::Ready,
            changed: Some(changed.clone()),
            endpoints: vec![endpoint, failed],
            ..PolicyView::default()
        };
        let zone = ChildPolicyView {
            weight: Some(2),
            role: Some("serving".into()),
            ..ChildPolicyView::new("zone", leaf)
        };
        let target = PolicyView {
            policy: "weighted_target_experimental".into(),
            state: ConnectivityState::Ready,
            changed: Some(changed.clone()),
            resolution_note: Some("half is missing".into()),
            details: vec![Detail::new("load", "zone").with("issued", 4)],
            children: vec![zone],
            ..PolicyView::default()
        };
        PolicyView {
            policy: "cds_experimental".into(),
            state: ConnectivityState::Ready,
            changed: Some(changed),
            config: Fields::from_iter([("cluster", json!("c")), ("a", json!([1, 2]))]),
            ..PolicyView::above(Some(target))
        }
    }

    #[test]
    fn the_drawing_has_every_name_state_and_reason_once() {
        let lines = [
            "cds READY for 3.2 s (connected) cluster=c a=[1, 2]",
            "└─ weighted_target READY",
            "   ├· note: half is missing",
            "   ├· load zone: issued 4",
            "   └─ zone: round_robin READY for 3.2 s (connected) [serving] weight=2",
            "      ├─ 127.0.0.1:1 READY ok=3 failed=1",
            "      └─ 127.0.0.1:2,[::1]:2 TRANSIENT_FAILURE ok=0 failed=0 weight=5 through 127.0.0.1:3128 error: refused",
        ];
        assert_eq!(tree().to_string().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn what_is_broken_off_a_line_hangs_beside_the_branches() {
        let hang: Vec<String> = tree().lines().into_iter().map(|line| line.hang).collect();
        assert_eq!(
            hang,
            ["│    ", "   │    ", "   │    ", "   │    ", "      │    ", "      │    ", "           "]
        );
    }

    #[test]
    fn ages_have_units() {
        let age = |seconds| Age(seconds).to_string();
        assert_eq!([age(0.24), age(34.2), age(600.0), age(9000.0)], ["0.2 s", "34 s", "10 min", "2 h"]);
    }
}
