//! A running commentary: sentences about the events of the channel, each with the reasons that the channel itself gives
//! at that moment (its history of events, and the explanation of a call).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use proxyless::XdsChannel;
use proxyless::inspect::{Candidate, Event, ExplainRequest, Explanation};

/// The method that the demo calls.
const METHOD: &str = "/proxyless.testkit.Echo/Unary";

/// Comments on one channel.
pub(super) struct Commentary {
    /// The number of events that have been commented on.
    seen: u64,
    /// The names of the backends.
    names: BTreeMap<SocketAddr, String>,
}

impl Commentary {
    pub(super) fn new(names: impl IntoIterator<Item = (SocketAddr, String)>) -> Self {
        Self { seen: 0, names: names.into_iter().collect() }
    }

    /// Sentences about the events since the last call.
    pub(super) async fn listen(&mut self, channel: &XdsChannel) -> Vec<String> {
        let Some(view) = channel.describe().await else { return Vec::new() };
        let new = usize::try_from(view.events_total.saturating_sub(self.seen)).unwrap_or(usize::MAX);
        self.seen = view.events_total;
        let events = &view.events[view.events.len().saturating_sub(new)..];
        let moved = events.iter().any(|event| Moved::parse(&event.description).is_some());
        let explanation = match moved {
            true => channel.explain(ExplainRequest::new(METHOD)).await,
            false => None,
        };
        self.comment(events, explanation.as_ref())
    }

    /// Events of the same kind, at several backends or of several resources, become one sentence.
    fn comment(&self, events: &[Event], explanation: Option<&Explanation>) -> Vec<String> {
        let mut sentences: Vec<String> = Vec::new();
        let mut alike = Alike::default();
        for event in events {
            let text = event.description.as_str();
            if let Some((backend, what)) = self.backend(text) {
                alike.add(what, backend);
            } else if let Some(resource) =
                text.strip_prefix("new ").and_then(|text| text.strip_suffix(" in use"))
            {
                alike.add(NEW, resource.to_owned());
            } else if let Some(moved) = Moved::parse(text) {
                sentences.extend(alike.take());
                sentences.push(moved.sentence(explanation, self));
            } else if !STEPS.iter().any(|step| text.starts_with(step)) {
                sentences.extend(alike.take());
                sentences.push(self.with_names(text));
            }
        }
        sentences.extend(alike.take());
        sentences
    }

    /// The backend at the start of a description, and the rest.
    fn backend<'a>(&self, text: &'a str) -> Option<(String, &'a str)> {
        let (address, what) = text.split_once(": ")?;
        let parsed: SocketAddr = address.parse().ok()?;
        let name = self.names.get(&parsed).map_or(address, String::as_str);
        Some((name.to_owned(), what))
    }

    /// The text with the names of backends instead of their addresses.
    fn with_names(&self, text: &str) -> String {
        let replace = |text: String, (address, name): (&SocketAddr, &String)| {
            text.replace(&format!("ipv4:{address}"), name).replace(&address.to_string(), name)
        };
        self.names.iter().fold(text.to_owned(), replace)
    }
}

/// The kind of new resources.
const NEW: &str = "sent by the control plane, and in use";

/// The beginnings of events that say nothing about where RPCs go.
const STEPS: [&str; 2] = ["asked for ", "channel "];

/// Events by kind, each with its subjects.
#[derive(Default)]
struct Alike<'a>(Vec<(&'a str, Vec<String>)>);

impl<'a> Alike<'a> {
    fn add(&mut self, what: &'a str, subject: String) {
        // Steps on the way to a connection.
        if ["connecting", "reconnecting"].contains(&what) {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == what) {
            Some((_, subjects)) if subjects.contains(&subject) => {}
            Some((_, subjects)) => subjects.push(subject),
            None => self.0.push((what, vec![subject])),
        }
    }

    /// A sentence for each kind.
    fn take(&mut self) -> Vec<String> {
        let sentence = |(what, mut subjects): (&str, Vec<String>)| {
            if what != NEW {
                subjects.sort();
            }
            format!("{}: {what}", subjects.join(", "))
        };
        std::mem::take(&mut self.0).into_iter().map(sentence).collect()
    }
}

/// RPCs moved from one priority or leaf cluster to another.
struct Moved<'a> {
    how: &'static str,
    from: &'a str,
    to: &'a str,
}

impl<'a> Moved<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (_, what) = text.split_once(": ")?;
        let parse = |how: &'static str| {
            let (from, to) = what.strip_prefix(how)?.strip_prefix(" from ")?.split_once(" to ")?;
            Some(Self { how, from, to })
        };
        parse("failed over").or_else(|| parse("moved up"))
    }

    /// The reasons are those of the explanation; later events may have changed them already.
    fn sentence(&self, explanation: Option<&Explanation>, names: &Commentary) -> String {
        let Self { how, from, to } = self;
        let candidate = |name: &str| -> Option<&Candidate> {
            let all = explanation?.decisions.iter().flat_map(|decision| &decision.candidates);
            all.into_iter().find(|candidate| candidate.name == name)
        };
        let why = |name: &str| Some(format!("{name}: {}", names.with_names(&candidate(name)?.why)));
        let reasons: Vec<_> = [why(from), why(to)].into_iter().flatten().collect();
        let because = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        format!("RPCs {how} from {from} to {to}{because}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(list: &[&str]) -> Vec<Event> {
        let event = |text: &&str| {
            let event = serde_json::json!({"time": 0.0, "severity": "info", "description": text});
            serde_json::from_value(event).unwrap()
        };
        list.iter().map(event).collect()
    }

    fn commentary() -> Commentary {
        let name = |port: u16, name: &str| (SocketAddr::from(([127, 0, 0, 1], port)), name.to_owned());
        Commentary::new([name(1, "eu-1"), name(2, "eu-2")])
    }

    #[test]
    fn events_of_several_backends_are_one_sentence_and_steps_are_left_out() {
        let told = commentary().comment(
            &events(&[
                "127.0.0.1:2: cannot connect: connection refused",
                "127.0.0.1:1: reconnecting",
                "127.0.0.1:1: cannot connect: connection refused",
                "asked for Cluster c",
                "new Cluster c in use",
                "new ClusterLoadAssignment c in use",
                "127.0.0.1:1: ejected for 3 s: 5 of 6 RPCs failed",
            ]),
            None,
        );
        assert_eq!(
            told,
            [
                "eu-1, eu-2: cannot connect: connection refused",
                "Cluster c, ClusterLoadAssignment c: sent by the control plane, and in use",
                "eu-1: ejected for 3 s: 5 of 6 RPCs failed",
            ]
        );
    }

    #[test]
    fn a_move_has_the_reasons_of_the_explanation() {
        let moved = Moved::parse("shop: failed over from shop-eu to shop-us").unwrap();
        assert_eq!(moved.sentence(None, &commentary()), "RPCs failed over from shop-eu to shop-us");
        let candidate =
            |name: &str, why: &str| serde_json::json!({"name": name, "chosen": false, "why": why});
        let decision = serde_json::json!({"level": "leaf_cluster", "by": "priority", "candidates": [
            candidate("shop-eu", "failed: ipv4:127.0.0.1:1: connection refused"),
            candidate("shop-us", "the first in order that is READY")]});
        let explanation = serde_json::json!({"channel": 1, "target": "t", "path": "/s/m", "state": "READY",
            "listener": "l", "decisions": [decision], "outcome": {"kind": "waits", "why": ""}});
        let explanation = serde_json::from_value(explanation).unwrap();
        assert_eq!(
            moved.sentence(Some(&explanation), &commentary()),
            "RPCs failed over from shop-eu to shop-us (shop-eu: failed: eu-1: connection refused; \
             shop-us: the first in order that is READY)"
        );
    }
}
