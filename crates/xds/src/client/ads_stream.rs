//! One ADS stream: what is to be sent on it, in which order, and when the next message may be read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::google::rpc::Status;

use super::wire::DiscoveryRequest;
use crate::resource::ResourceType;

/// Reading stops while this many answers wait to be sent: a server that sends and never reads must not fill memory.
const MAX_UNSENT: usize = 64;
/// INVALID_ARGUMENT: the code of every NACK.
const NACK_CODE: i32 = 3;

/// The state of one stream. It ends with the stream: nonces mean nothing on another one.
#[derive(Debug)]
pub(super) struct AdsStream {
    id: u64,
    up: bool,
    seen_response: bool,
    node_sent: bool,
    /// The type of the request that is on its way out.
    sending: Option<ResourceType>,
    queue: VecDeque<Pending>,
    /// The names that the server was asked for last. X-08: a type stays, also without names.
    asked: BTreeMap<ResourceType, Vec<Arc<str>>>,
    /// The nonce of each type's newest response.
    nonces: BTreeMap<ResourceType, String>,
    reading: bool,
    /// The events of the last message that watchers still work on.
    tokens: BTreeSet<u64>,
}

/// A request that is to be sent. Names are filled in when it goes out, so that it always has the newest.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) resource_type: ResourceType,
    answer: Option<Answer>,
}

/// An ACK, or with an error a NACK.
#[derive(Debug)]
pub(super) struct Answer {
    /// The version in use: the response's own for an ACK, the one before for a NACK.
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) error: Option<String>,
}

impl AdsStream {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            up: false,
            seen_response: false,
            node_sent: false,
            sending: None,
            queue: VecDeque::new(),
            asked: BTreeMap::new(),
            nonces: BTreeMap::new(),
            reading: false,
            tokens: BTreeSet::new(),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether a response came on this stream.
    pub(super) fn seen_response(&self) -> bool {
        self.seen_response
    }

    /// A response came, of whatever type.
    pub(super) fn response_seen(&mut self) {
        self.seen_response = true;
    }

    /// Whether the type was asked for on this stream.
    pub(super) fn has_asked(&self, resource_type: ResourceType) -> bool {
        self.asked.contains_key(&resource_type)
    }

    /// The stream can send: all subscriptions go out anew.
    pub(super) fn up(&mut self, types: impl Iterator<Item = ResourceType>) {
        self.up = true;
        types.for_each(|resource_type| self.want(resource_type));
    }

    /// The names of a type changed. Requests that only say so are joined, and ride along with an answer.
    pub(super) fn want(&mut self, resource_type: ResourceType) {
        if self.up && !self.queue.iter().any(|pending| pending.resource_type == resource_type) {
            self.queue.push_back(Pending { resource_type, answer: None });
        }
    }

    /// A response was judged. Every response gets its own answer, in order.
    pub(super) fn answer(&mut self, resource_type: ResourceType, answer: Answer) {
        self.nonces.insert(resource_type, answer.nonce.clone());
        self.queue.retain(|pending| pending.resource_type != resource_type || pending.answer.is_some());
        self.queue.push_back(Pending { resource_type, answer: Some(answer) });
    }

    /// The next request to build, if one may be sent now: one at a time.
    pub(super) fn next_pending(&mut self) -> Option<Pending> {
        if !self.up || self.sending.is_some() {
            return None;
        }
        self.queue.pop_front()
    }

    /// Builds a request, or finds that it need not be sent. `version` is the accepted one of the type.
    pub(super) fn request(
        &mut self,
        pending: Pending,
        names: Vec<Arc<str>>,
        version: &str,
        node: &Bytes,
    ) -> Option<DiscoveryRequest> {
        let Pending { resource_type, answer } = pending;
        match self.asked.get(&resource_type) {
            // An empty list in a type's first request would ask for everything there is.
            None if names.is_empty() => return None,
            Some(asked) if answer.is_none() && *asked == names => return None,
            _ => {}
        }
        let resource_names = names.iter().map(ToString::to_string).collect();
        self.asked.insert(resource_type, names);
        let (version_info, response_nonce, error) = match answer {
            Some(Answer { version, nonce, error }) => (version, nonce, error),
            None => (version.to_owned(), self.nonces.get(&resource_type).cloned().unwrap_or_default(), None),
        };
        self.sending = Some(resource_type);
        // A27-61: the node is in the first request of a stream, and only there.
        let node = (!self.node_sent).then(|| node.clone());
        self.node_sent = true;
        Some(DiscoveryRequest {
            version_info,
            node,
            resource_names,
            type_url: resource_type.type_url().to_owned(),
            response_nonce,
            error_detail: error.map(|message| Status { code: NACK_CODE, message, ..Default::default() }),
        })
    }

    /// The request left; gives its type.
    pub(super) fn send_done(&mut self) -> Option<ResourceType> {
        self.sending.take()
    }

    /// A message came.
    pub(super) fn read_done(&mut self) {
        self.reading = false;
    }

    /// An event of the message at hand goes to a watcher.
    pub(super) fn hold(&mut self, token: u64) {
        self.tokens.insert(token);
    }

    /// A watcher is done with an event.
    pub(super) fn release(&mut self, token: u64) {
        self.tokens.remove(&token);
    }

    /// Whether the next message is to be read now; says so once per message.
    pub(super) fn start_reading(&mut self) -> bool {
        let free = self.up && self.tokens.is_empty() && self.queue.len() < MAX_UNSENT;
        free && !std::mem::replace(&mut self.reading, true)
    }
}
