//! One ADS stream: the requests to send, their order, and when the next message may be read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::google::rpc::Status;
use proxyless_sans_io::Time;
use proxyless_sans_io::values::Code;

use super::ids::ReadToken;
use super::messages::DiscoveryRequest;
use super::requested_names::RequestedNames;
use crate::StreamId;
use crate::resource::ResourceType;

/// The number of unsent answers at which reading pauses: a server that sends and never reads must not exhaust memory.
const MAX_UNSENT: usize = 64;
/// The same for their bytes: versions and nonces can be as long as messages.
const MAX_UNSENT_BYTES: usize = 1 << 20;
/// How many NACKs are remembered for the sake of [`NACK_INTERVAL`].
const MAX_REMEMBERED_NACKS: usize = 64;
/// The interval at which a version of a type is NACKed. Some servers resend a rejected version as soon as they see its
/// NACK, which without a limit is a loop as fast as the network.
const NACK_INTERVAL: Duration = Duration::from_secs(1);
/// The time in which a response that crosses a request arrives: a round trip, and some delay of the server. Servers ignore
/// such a request, since its nonce is stale.
const SETTLE: Duration = Duration::from_secs(2);

/// The state of one stream. It is dropped with the stream, because nonces are only valid on their own stream.
#[derive(Debug, Default)]
pub(super) struct AdsStream {
    id: StreamId,
    /// The time at which the stream became able to send.
    up_since: Option<Time>,
    seen_response: bool,
    seen_garbage: bool,
    node_sent: bool,
    /// The type of the request in flight.
    sending: Option<ResourceType>,
    queue: VecDeque<Pending>,
    /// The names in the last request of each type. X-08: a type stays subscribed even without names.
    asked: BTreeMap<ResourceType, RequestedNames>,
    /// The names in the first request of each type, until a response of the type arrives: that response accounts for
    /// them, but perhaps not for names that were added since.
    first_asked: BTreeMap<ResourceType, RequestedNames>,
    /// The nonce of the latest response of each type.
    nonces: BTreeMap<ResourceType, String>,
    /// The last NACKs, oldest first: the type, a hash of the version (which can be as long as a message), and when.
    pub(super) nacked: VecDeque<(ResourceType, u64, Time)>,
    /// Delayed NACKs of versions that were NACKed recently, and the time at which they are due. At most one per type.
    braked: BTreeMap<ResourceType, (Time, Ack)>,
    /// The time since which the next message is awaited, if it is.
    reading_since: Option<Time>,
    /// The time that was spent awaiting the earlier messages.
    listened: Duration,
    /// For each type, the time of [`Self::listened`] at which its latest request was sent. Not while it is being sent, nor
    /// if a response arrived within [`SETTLE`].
    settling: BTreeMap<ResourceType, Duration>,
    /// The events of the last message that watchers have not finished handling.
    tokens: BTreeSet<ReadToken>,
}

/// The reason why the server may not have taken note of the latest request of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// A response that crosses the request may arrive until this time of [`AdsStream::listened`].
    Settling { until: Duration },
    /// The request is unsent, or a response may have crossed it.
    Crossed,
}

/// A request to send. Its names are filled in when it is sent, so that they are current.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) resource_type: ResourceType,
    ack: Option<Ack>,
}

/// An ACK, or a NACK if it has an error.
#[derive(Debug)]
pub(super) struct Ack {
    /// The accepted version: that of the response for an ACK, the previous one for a NACK.
    pub(super) version: Arc<str>,
    pub(super) nonce: String,
    pub(super) rejected: Option<Rejected>,
}

/// The subject of a NACK.
#[derive(Debug)]
pub(super) struct Rejected {
    /// The version of the rejected response.
    pub(super) version: Arc<str>,
    /// The violations.
    pub(super) why: String,
}

impl Pending {
    /// How many bytes the server has made us hold.
    fn bytes(&self) -> usize {
        self.ack.as_ref().map_or(0, |ack| ack.version.len() + ack.nonce.len())
    }
}

fn hash(version: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(version.as_bytes());
    hasher.finish()
}

impl AdsStream {
    pub(super) fn new(id: StreamId) -> Self {
        Self { id, ..Self::default() }
    }

    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    /// Whether a response has been received on this stream.
    pub(super) fn seen_response(&self) -> bool {
        self.seen_response
    }

    /// Records a response of any type.
    pub(super) fn response_seen(&mut self) {
        self.seen_response = true;
    }

    /// Records an ignored message; returns whether it is the first one.
    pub(super) fn garbage_seen(&mut self) -> bool {
        !std::mem::replace(&mut self.seen_garbage, true)
    }

    /// Whether the type was requested on this stream.
    pub(super) fn has_asked(&self, resource_type: ResourceType) -> bool {
        self.asked.contains_key(&resource_type)
    }

    /// Whether the last request of the type contained the name.
    pub(super) fn has_asked_for(&self, resource_type: ResourceType, name: &Arc<str>) -> bool {
        self.asked.get(&resource_type).is_some_and(|asked| asked.contains(name))
    }

    /// Whether the next response of the type accounts for the name: no response of the type has arrived, and the name
    /// was in the first request.
    pub(super) fn will_account_for(&self, resource_type: ResourceType, name: &Arc<str>) -> bool {
        self.first_asked.get(&resource_type).is_some_and(|asked| asked.contains(name))
    }

    /// The time that the client has spent awaiting messages. Other time does not count: a response that crosses a request is
    /// not read then.
    pub(super) fn listened(&self, now: Time) -> Duration {
        self.listened + self.reading_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Whether the server has read the latest request of the type, and not ignored it: no response crossed it.
    pub(super) fn is_settled(&self, now: Time, resource_type: ResourceType) -> bool {
        self.settling.get(&resource_type).is_some_and(|sent| self.listened(now) >= *sent + SETTLE)
    }

    /// The doubt that the server has noticed the unsubscription of a resource that was requested on this stream.
    pub(super) fn doubt(&self, now: Time, resource_type: ResourceType, name: &Arc<str>) -> Option<Doubt> {
        match self.settling.get(&resource_type) {
            // The unsubscription is unsent.
            _ if self.has_asked_for(resource_type, name) => Some(Doubt::Crossed),
            _ if !self.has_asked(resource_type) || self.is_settled(now, resource_type) => None,
            Some(sent) => Some(Doubt::Settling { until: *sent + SETTLE }),
            None => Some(Doubt::Crossed),
        }
    }

    /// Whether a request of the type is being sent or waits for its turn.
    pub(super) fn has_unsent(&self, resource_type: ResourceType) -> bool {
        self.sending == Some(resource_type)
            || self.queue.iter().any(|pending| pending.resource_type == resource_type)
    }

    /// The time since the stream became able to send.
    pub(super) fn age(&self, now: Time) -> Duration {
        self.up_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// The stream can send: requests all subscriptions.
    pub(super) fn up(&mut self, now: Time, types: impl Iterator<Item = ResourceType>) {
        self.up_since = Some(now);
        types.for_each(|resource_type| self.want(now, resource_type));
    }

    /// The names of a type changed. Such requests are coalesced, and merged into a pending answer.
    pub(super) fn want(&mut self, now: Time, resource_type: ResourceType) {
        if self.up_since.is_none() || self.queue.iter().any(|pending| pending.resource_type == resource_type)
        {
            return;
        }
        // A request with the nonce of the rejected response but without its error would pass as an ACK, and one with an
        // older nonce would be ignored. So the delayed NACK is sent now, with the new names.
        match self.braked.remove(&resource_type) {
            Some((_, ack)) => self.push_ack(now, resource_type, ack),
            None => self.queue.push_back(Pending { resource_type, ack: None }),
        }
    }

    /// Queues the answer to a response. Each response is answered, in order; but a delayed NACK is dropped when a newer
    /// response arrives, since its nonce is stale and the server has seen a NACK of that version.
    pub(super) fn answer(&mut self, now: Time, resource_type: ResourceType, ack: Ack) {
        self.nonces.insert(resource_type, ack.nonce.clone());
        self.first_asked.remove(&resource_type);
        if !self.is_settled(now, resource_type) {
            self.settling.remove(&resource_type);
        }
        self.braked.remove(&resource_type);
        let last_nack = ack.rejected.as_ref().and_then(|rejected| {
            let version = hash(&rejected.version);
            let of_version = |(of, nacked, _): &&(_, _, _)| (*of, *nacked) == (resource_type, version);
            let (.., time) = self.nacked.iter().rev().find(of_version)?;
            (now.since(*time) < NACK_INTERVAL).then_some(*time)
        });
        let names_wait = self.queue.iter().any(|pending| pending.resource_type == resource_type);
        match last_nack {
            Some(time) if !names_wait => {
                self.braked.insert(resource_type, (time + NACK_INTERVAL, ack));
            }
            _ => self.push_ack(now, resource_type, ack),
        }
    }

    fn push_ack(&mut self, now: Time, resource_type: ResourceType, ack: Ack) {
        if let Some(rejected) = &ack.rejected {
            self.nacked.push_back((resource_type, hash(&rejected.version), now));
            if self.nacked.len() > MAX_REMEMBERED_NACKS {
                self.nacked.pop_front();
            }
        }
        self.queue.retain(|pending| pending.resource_type != resource_type || pending.ack.is_some());
        self.queue.push_back(Pending { resource_type, ack: Some(ack) });
    }

    /// The time at which the next delayed NACK is due.
    pub(super) fn next_nack(&self) -> Option<Time> {
        self.braked.values().map(|(until, _)| *until).min()
    }

    /// Queues the delayed NACKs that are due.
    pub(super) fn release_nacks(&mut self, now: Time) {
        let due = self.braked.iter().filter(|(_, (until, _))| *until <= now);
        for resource_type in due.map(|(resource_type, _)| *resource_type).collect::<Vec<_>>() {
            if let Some((_, ack)) = self.braked.remove(&resource_type) {
                self.push_ack(now, resource_type, ack);
            }
        }
    }

    /// The next request to build, if one may be sent now: one at a time.
    pub(super) fn next_pending(&mut self) -> Option<Pending> {
        if self.up_since.is_none() || self.sending.is_some() {
            return None;
        }
        self.queue.pop_front()
    }

    /// The names in the last request of the type, if they are those to request at this revision of the subscriptions.
    pub(super) fn asked_at(&self, resource_type: ResourceType, revision: u64) -> Option<&RequestedNames> {
        self.asked.get(&resource_type).filter(|asked| asked.is_current(revision))
    }

    /// Builds a request for these names, which are not in it yet, or returns `None` if it need not be sent. `version` is
    /// the accepted version of the type.
    pub(super) fn request(
        &mut self,
        pending: Pending,
        names: &RequestedNames,
        version: &str,
        node: &Bytes,
    ) -> Option<DiscoveryRequest> {
        let Pending { resource_type, ack } = pending;
        match self.asked.get(&resource_type) {
            // An empty list in the first request of a type would subscribe to all resources.
            None if names.is_empty() => return None,
            Some(asked) if ack.is_none() && asked.names() == names.names() => return None,
            _ => {}
        }
        if !self.asked.contains_key(&resource_type) {
            self.first_asked.insert(resource_type, names.clone());
        }
        self.asked.insert(resource_type, names.clone());
        let (version_info, response_nonce, rejected) = match ack {
            Some(Ack { version, nonce, rejected }) => (version.to_string(), nonce, rejected),
            None => (version.to_owned(), self.nonces.get(&resource_type).cloned().unwrap_or_default(), None),
        };
        self.sending = Some(resource_type);
        self.settling.remove(&resource_type);
        // A27-61: the node is in the first request of a stream, and only there.
        let node = (!self.node_sent).then(|| node.clone());
        self.node_sent = true;
        Some(DiscoveryRequest {
            version_info,
            node,
            resource_names: Vec::new(),
            type_url: resource_type.type_url().to_owned(),
            response_nonce,
            error_detail: rejected.map(|Rejected { why: message, .. }| Status {
                code: Code::InvalidArgument as i32,
                message,
                ..Default::default()
            }),
        })
    }

    /// The request has been sent; returns its type.
    pub(super) fn send_done(&mut self, now: Time) -> Option<ResourceType> {
        let resource_type = self.sending.take()?;
        let is_answer = |pending: &Pending| pending.resource_type == resource_type && pending.ack.is_some();
        if !self.braked.contains_key(&resource_type) && !self.queue.iter().any(is_answer) {
            self.settling.insert(resource_type, self.listened(now));
        }
        Some(resource_type)
    }

    /// A message has been received.
    pub(super) fn read_done(&mut self, now: Time) {
        self.listened = self.listened(now);
        self.reading_since = None;
    }

    /// Tracks an event of the current message until its watcher has handled it.
    pub(super) fn hold(&mut self, token: ReadToken) {
        self.tokens.insert(token);
    }

    /// An event is handled, or not waited for any longer.
    pub(super) fn release(&mut self, token: ReadToken) {
        self.tokens.remove(&token);
    }

    /// Whether the next message should be read now; true once per message.
    pub(super) fn start_reading(&mut self, now: Time) -> bool {
        let free = self.up_since.is_some()
            && self.tokens.is_empty()
            && self.queue.len() < MAX_UNSENT
            && self.queue.iter().map(Pending::bytes).sum::<usize>() < MAX_UNSENT_BYTES;
        let starts = free && self.reading_since.is_none();
        if starts {
            self.reading_since = Some(now);
        }
        starts
    }
}
