//! A small independent model of the ADS protocol, which checks the client.
//!
//! It sees each response when the client reads it, and each request when the client writes it.

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use proxyless_xds::resource::ResourceType;

use crate::laws::invariants::Violation;

/// A response as the client should understand it.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Its type.
    pub(crate) resource_type: ResourceType,
    /// Its version.
    pub(crate) version: String,
    /// Its nonce.
    pub(crate) nonce: String,
    /// Whether one of its resources is bad, so that it must be NACKed.
    pub(crate) bad: bool,
}

/// The maximum number of unanswered responses: those that the client queues, the one whose answer it sends, and the
/// latest.
const MAX_UNANSWERED: usize = 64 + 2;

/// The state of the client.
#[derive(Debug, Default)]
pub struct AdsModel {
    /// The version that the client accepted last, by type. It outlives streams.
    accepted: BTreeMap<ResourceType, String>,
    types: BTreeMap<ResourceType, TypeState>,
    requests: usize,
    nacks: usize,
    is_open: bool,
}

/// A type on the current stream.
#[derive(Debug, Default)]
struct TypeState {
    /// Responses that the client has read, in order.
    read: Vec<Response>,
    /// The number of them that it has answered.
    answered: usize,
    /// The names of its last request; `None` before the first.
    names: Option<BTreeSet<String>>,
}

impl TypeState {
    /// The response that a request answers, and its position.
    ///
    /// Responses are answered in order. Only a bad response whose version was NACKed before may be skipped: the client
    /// delays repeated NACKs of a version, and a newer response may arrive first.
    fn answered_by(&self, request: &DiscoveryRequest) -> Option<(usize, Response)> {
        let (answered, open) = self.read.split_at(self.answered);
        let told = |skipped: &Response| {
            let same = |other: &Response| other.bad && other.version == skipped.version;
            skipped.bad && answered.iter().any(same)
        };
        let offset = open.iter().position(|response| response.nonce == request.response_nonce)?;
        let skipped = open.get(..offset)?;
        let response = open.get(offset)?;
        skipped.iter().all(told).then(|| (self.answered + offset, response.clone()))
    }
}

impl AdsModel {
    /// A stream begins: only the accepted versions of the last one remain.
    pub(crate) fn opened(&mut self) {
        for (resource_type, state) in std::mem::take(&mut self.types) {
            // The client has accepted responses even if it could no longer ACK them.
            let unanswered = state.read.into_iter().skip(state.answered);
            if let Some(last) = unanswered.rev().find(|response| !response.bad) {
                self.accepted.insert(resource_type, last.version);
            }
        }
        self.requests = 0;
        self.is_open = true;
    }

    /// The number of NACKs over all streams.
    #[must_use]
    pub fn nacks(&self) -> usize {
        self.nacks
    }

    /// The client has closed the stream.
    pub(crate) fn closed(&mut self) {
        self.is_open = false;
    }

    /// The client reads a response.
    ///
    /// # Errors
    /// If so many are unanswered that it should have stopped reading.
    pub(crate) fn read(&mut self, response: Response) -> Result<(), Violation> {
        self.types.entry(response.resource_type).or_default().read.push(response);
        // A NACK that is delayed may be dropped, so only ACKs count.
        let open = self.types.values().flat_map(|state| state.read.iter().skip(state.answered));
        let unanswered = open.filter(|response| !response.bad).count();
        Violation::unless(unanswered <= MAX_UNANSWERED, "reading stops while answers wait to be sent", || {
            format!("{unanswered} responses are not answered")
        })
    }

    /// The client writes a request.
    ///
    /// # Errors
    /// If the request violates the protocol.
    pub(crate) fn written(&mut self, request: &DiscoveryRequest) -> Result<(), Violation> {
        let wrong = |rule, why: String| Err(Violation::new(rule, format!("{why}: {}", describe(request))));
        self.requests += 1;
        self.nacks += usize::from(request.error_detail.is_some());
        if !self.is_open {
            return wrong("requests go to open streams", "no stream is open".into());
        }
        // A27-61: only the first request of a stream has the node.
        if request.node.is_some() != (self.requests == 1) {
            return wrong("the node is in the first request only", format!("request {}", self.requests));
        }
        let Some(resource_type) = ResourceType::from_type_url(&request.type_url) else {
            return wrong("requests are of a known type", "unknown".into());
        };
        let accepted = self.accepted.entry(resource_type).or_default();
        let state = self.types.entry(resource_type).or_default();
        let names: BTreeSet<String> = request.resource_names.iter().cloned().collect();
        if names.len() != request.resource_names.len() {
            return wrong("a request has no duplicate names", "twice".into());
        }
        let first = state.names.is_none();
        let old_names = state.names.replace(names);
        if first {
            // An empty list in the first request would be a wildcard; a nonce would be that of an old stream.
            if request.resource_names.is_empty() {
                return wrong("the first request of a type is not a wildcard", "wildcard".into());
            }
            if !request.response_nonce.is_empty() || request.error_detail.is_some() {
                return wrong("the first request of a type has no nonce", "answer".into());
            }
            // A client that has dropped all its resources may request without a version.
            if !request.version_info.is_empty() && request.version_info != *accepted {
                return wrong("versions outlive streams", format!("accepted was {accepted:?}"));
            }
            accepted.clone_from(&request.version_info);
            return Ok(());
        }
        if let Some((index, response)) = state.answered_by(request) {
            state.answered = index + 1;
            let nacked = request
                .error_detail
                .as_ref()
                .is_some_and(|error| error.code != 0 && !error.message.is_empty());
            if nacked != response.bad || request.error_detail.is_some() != response.bad {
                return wrong("bad responses are NACKed, good ones are ACKed", format!("{response:?}"));
            }
            if !response.bad {
                accepted.clone_from(&response.version);
            }
            if request.version_info != *accepted {
                return wrong(
                    "an ACK has the new version, a NACK the old one",
                    format!("{accepted:?} expected"),
                );
            }
            return Ok(());
        }
        let last = state.answered.checked_sub(1).and_then(|last| state.read.get(last));
        if request.response_nonce != last.map_or("", |response| &response.nonce) {
            return wrong("nonces are those of the newest response", format!("last answered {last:?}"));
        }
        if old_names == state.names {
            return wrong("requests are not repeated", "repetition".into());
        }
        if request.error_detail.is_some() || request.version_info != *accepted {
            return wrong("a change of names keeps the version", format!("{accepted:?} expected"));
        }
        Ok(())
    }

    /// At rest, everything is answered, and exactly the watched resources are requested.
    ///
    /// # Errors
    /// If not.
    pub fn at_rest(&self, watched: &BTreeSet<(ResourceType, String)>) -> Result<(), Violation> {
        // The stream of a client without watches may have ended in any way.
        if watched.is_empty() {
            return Ok(());
        }
        Violation::unless(self.is_open, "a client with watches has a stream", || format!("{watched:?}"))?;
        let asked = self.types.iter().flat_map(|(&resource_type, state)| {
            state.names.iter().flatten().map(move |name| (resource_type, name.clone()))
        });
        let asked: BTreeSet<_> = asked.collect();
        if asked != *watched {
            return Err(Violation::new(
                "exactly the watched resources are requested",
                format!("{asked:?}, expected {watched:?}"),
            ));
        }
        for (resource_type, state) in &self.types {
            if state.answered != state.read.len() {
                let (answered, read) = (state.answered, state.read.len());
                let detail = format!("{}: {answered} of {read}", resource_type.name());
                return Err(Violation::new("every response is answered", detail));
            }
        }
        Ok(())
    }
}

/// A request in one line.
pub(crate) fn describe(request: &DiscoveryRequest) -> String {
    let kind = ResourceType::from_type_url(&request.type_url).map_or("?", ResourceType::name);
    let error =
        request.error_detail.as_ref().map_or(String::new(), |error| format!(" NACK {:?}", error.message));
    let (names, version, nonce) = (&request.resource_names, &request.version_info, &request.response_nonce);
    format!("{kind} {names:?} version {version:?} nonce {nonce:?}{error}")
}

#[cfg(test)]
mod tests;
