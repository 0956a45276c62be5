//! One type on one stream: the resources that the client asks for, has been sent, and has accepted.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::google::rpc::Status;
use proxyless_testkit::{CDS, LDS, RDS};

use super::snapshot::{Entry, Snapshot, TypeSnapshot};

/// The state of a type on a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subscription {
    pub(crate) names: BTreeSet<String>,
    /// All resources of the type.
    pub(crate) wildcard: bool,
    /// The hashes of what the client has been sent.
    pub(crate) sent: BTreeMap<String, u64>,
    pub(crate) last: Option<Sent>,
    /// The version of the latest accepted response.
    pub(crate) accepted: Option<String>,
    /// The reason of the latest response's rejection.
    pub(crate) error: Option<String>,
}

/// The latest response.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) answer: Answer,
}

/// The client's answer to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Pending,
    Accepted,
    Rejected,
}

/// The news in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Ack { version: String },
    Nack { version: String, error: String },
}

/// Whether an update of a listener or of routes must wait until the client has answered the latest clusters and
/// endpoints: it should know a cluster before a route leads there.
pub(crate) fn must_wait(subscriptions: &BTreeMap<String, Subscription>, type_url: &str) -> bool {
    let is_update = subscriptions.get(type_url).is_some_and(|one| one.last.is_some());
    let is_pending =
        |one: &Subscription| one.last.as_ref().is_some_and(|last| last.answer == Answer::Pending);
    let earlier = |other: &str| Snapshot::rank(other) < Snapshot::rank(LDS);
    is_update
        && (type_url == LDS || type_url == RDS)
        && subscriptions.iter().any(|(other, one)| earlier(other) && is_pending(one))
}

impl Subscription {
    /// Whether a wildcard is possible: only these types are listed as a whole.
    pub(crate) fn is_listed(type_url: &str) -> bool {
        type_url == LDS || type_url == CDS
    }

    /// The resources that the client asks for and that exist.
    pub(crate) fn wanted<'a>(&'a self, kind: &'a TypeSnapshot) -> Vec<(&'a String, &'a Entry)> {
        match self.wildcard {
            true => kind.resources.iter().collect(),
            false => self.names.iter().filter_map(|name| kind.resources.get_key_value(name)).collect(),
        }
    }

    /// Records the answer to the latest response, if the nonce is its.
    pub(crate) fn answer(&mut self, nonce: &str, error: Option<&Status>) -> Option<News> {
        let last = self.last.as_mut().filter(|last| last.nonce == nonce && last.answer == Answer::Pending)?;
        let version = last.version.clone();
        match error {
            None => {
                last.answer = Answer::Accepted;
                self.accepted = Some(version.clone());
                self.error = None;
                Some(News::Ack { version })
            }
            Some(status) => {
                last.answer = Answer::Rejected;
                self.error = Some(status.message.clone());
                Some(News::Nack { version, error: status.message.clone() })
            }
        }
    }
}
