//! The state of a control plane: its resources, its streams with what each was sent, and the log. It is plain data,
//! from which the responses follow: [`State::push`] compares a stream with the resources and sends the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use super::request::Request;
use super::resource::{CDS, LDS, Resource, Selector};

/// The output of a stream: an encoded response, or the end. `Ok(None)` ends it with status OK.
pub(crate) type Outgoing = Result<Option<Bytes>, Status>;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) requests: Vec<Arc<Request>>,
    pub(crate) refusal: Option<Status>,
    pub(crate) streams_opened: u64,
    types: BTreeMap<String, ResourceType>,
    streams: BTreeMap<u64, Stream>,
    nonces: u64,
}

#[derive(Debug, Default)]
struct ResourceType {
    version: u64,
    withheld: bool,
    resources: BTreeMap<String, Entry>,
    /// What clients see of withheld names: the state when withholding started.
    frozen: BTreeMap<String, Option<Entry>>,
}

impl ResourceType {
    fn visible(&self, name: &str) -> Option<&Entry> {
        match self.frozen.get(name) {
            Some(frozen) => frozen.as_ref(),
            None => self.resources.get(name),
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    value: Any,
    /// The version of the type at its last change.
    version: u64,
}

#[derive(Debug)]
struct Stream {
    outbox: mpsc::UnboundedSender<Outgoing>,
    subscriptions: BTreeMap<String, Subscription>,
}

/// One type on one stream.
#[derive(Debug, Default)]
struct Subscription {
    names: BTreeSet<String>,
    wildcard: bool,
    /// The versions of what the client has; names that it unsubscribes are removed.
    sent: BTreeMap<String, u64>,
    last: Option<Response>,
}

/// The latest response of a type on a stream.
#[derive(Debug)]
struct Response {
    version: String,
    nonce: String,
    /// The ACK or NACK.
    verdict: Option<Arc<Request>>,
}

impl State {
    // -- resources ----------------------------------------------------------

    /// Applies all changes, then sends at most one response per type and stream.
    pub(crate) fn change(&mut self, changes: Vec<Change>) {
        let mut touched = BTreeSet::new();
        for change in &changes {
            let type_url = change.type_url();
            if touched.insert(type_url.to_owned()) {
                self.types.entry(type_url.to_owned()).or_default().version += 1;
            }
        }
        for change in changes {
            let resource_type = self.types.entry(change.type_url().to_owned()).or_default();
            match change {
                Change::Set(Resource { name, value, .. }) => {
                    let version = resource_type.version;
                    resource_type.resources.insert(name, Entry { value, version });
                }
                Change::Remove(_, name) => {
                    resource_type.resources.remove(&name);
                }
            }
        }
        self.push_all(touched.iter());
    }

    pub(crate) fn withhold(&mut self, selector: Selector) {
        match selector {
            Selector::Type(type_url) => self.types.entry(type_url).or_default().withheld = true,
            Selector::Resource(type_url, name) => {
                let resource_type = self.types.entry(type_url).or_default();
                let now = resource_type.visible(&name).cloned();
                resource_type.frozen.insert(name, now);
            }
        }
    }

    pub(crate) fn release(&mut self, selector: Selector) {
        let type_url = match selector {
            Selector::Type(type_url) => {
                self.types.entry(type_url.clone()).or_default().withheld = false;
                type_url
            }
            Selector::Resource(type_url, name) => {
                self.types.entry(type_url.clone()).or_default().frozen.remove(&name);
                type_url
            }
        };
        self.push_all([&type_url]);
    }

    pub(crate) fn version(&self, type_url: &str) -> String {
        self.types.get(type_url).map_or(0, |t| t.version).to_string()
    }

    fn push_all<'a>(&mut self, type_urls: impl IntoIterator<Item = &'a String>) {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for type_url in type_urls {
            for stream in &streams {
                self.push(*stream, type_url);
            }
        }
    }

    /// Sends the difference between this stream's state and the resources of a type.
    fn push(&mut self, stream: u64, type_url: &str) {
        let Some(resource_type) = self.types.get(type_url).filter(|t| !t.withheld) else { return };
        let Some(stream) = self.streams.get_mut(&stream) else { return };
        let Some(subscription) = stream.subscriptions.get_mut(type_url) else { return };

        let known: Vec<(&String, &Entry)> = if subscription.wildcard {
            resource_type.resources.keys().filter_map(|n| Some((n, resource_type.visible(n)?))).collect()
        } else {
            subscription.names.iter().filter_map(|n| Some((n, resource_type.visible(n)?))).collect()
        };
        let is_new =
            |(name, entry): &&(&String, &Entry)| subscription.sent.get(*name) != Some(&entry.version);
        let gone = subscription.sent.keys().any(|name| resource_type.visible(name).is_none());
        // State of the world: a response of these two types is the complete list, and absence means deletion.
        let whole_list = type_url == LDS || type_url == CDS;
        let resources: Vec<Any> = if whole_list {
            if !gone && !known.iter().any(|entry| is_new(&entry)) {
                return;
            }
            known.iter().map(|(_, entry)| entry.value.clone()).collect()
        } else {
            known.iter().filter(is_new).map(|(_, entry)| entry.value.clone()).collect()
        };
        let sent = known.iter().map(|(name, entry)| ((*name).clone(), entry.version)).collect();
        subscription.sent = sent;
        if resources.is_empty() && !whole_list {
            return;
        }
        self.nonces += 1;
        let response = DiscoveryResponse {
            version_info: resource_type.version.to_string(),
            type_url: type_url.to_owned(),
            nonce: format!("n{}", self.nonces),
            resources,
            ..Default::default()
        };
        stream.send(&response);
    }

    // -- bypassing the bookkeeping ------------------------------------------

    /// Sends these resources of a type on every stream, whatever it subscribes to. Returns the nonces, one per stream.
    pub(crate) fn send(&mut self, type_url: &str, resources: &[Any]) -> Vec<String> {
        let resource_type = self.types.entry(type_url.to_owned()).or_default();
        resource_type.version += 1;
        let version_info = resource_type.version.to_string();
        let mut nonces = Vec::new();
        for stream in self.streams.values_mut() {
            self.nonces += 1;
            let nonce = format!("n{}", self.nonces);
            stream.send(&DiscoveryResponse {
                version_info: version_info.clone(),
                type_url: type_url.to_owned(),
                nonce: nonce.clone(),
                resources: resources.to_vec(),
                ..Default::default()
            });
            nonces.push(nonce);
        }
        nonces
    }

    /// Sends a response unchanged on every stream.
    pub(crate) fn send_response(&mut self, response: &DiscoveryResponse) {
        self.streams.values_mut().for_each(|stream| stream.send(response));
    }

    /// Sends this on every stream.
    pub(crate) fn send_outgoing(&mut self, outgoing: &Outgoing) {
        for stream in self.streams.values() {
            // A closed outbox means that the stream has just ended.
            let _ = stream.outbox.send(outgoing.clone());
        }
    }

    // -- streams ------------------------------------------------------------

    pub(crate) fn open(&mut self) -> Result<(u64, mpsc::UnboundedReceiver<Outgoing>), Status> {
        self.streams_opened += 1;
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let (outbox, inbox) = mpsc::unbounded_channel();
        let number = self.streams_opened;
        self.streams.insert(number, Stream { outbox, subscriptions: BTreeMap::new() });
        Ok((number, inbox))
    }

    pub(crate) fn close(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    pub(crate) fn open_streams(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn on_request(&mut self, number: u64, message: DiscoveryRequest) {
        let request = Arc::new(Request::new(number, message));
        self.requests.push(request.clone());
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let type_url = request.type_url();
        let is_first = !stream.subscriptions.contains_key(type_url);
        let subscription = stream.subscriptions.entry(type_url.to_owned()).or_default();
        if let Some(last) = subscription.last.as_mut().filter(|_| !request.nonce().is_empty()) {
            if request.nonce() != last.nonce {
                return; // It answers an older response; the answer to the newest is still to come.
            }
            if request.is_nack() || request.version() == last.version {
                last.verdict = Some(request.clone());
            }
        }
        // An empty list is a wildcard in the first request only; later it unsubscribes from everything.
        let may_be_wildcard = type_url == LDS || type_url == CDS;
        let names = request.names();
        if may_be_wildcard && ((is_first && names.is_empty()) || names.iter().any(|n| n == "*")) {
            subscription.wildcard = true;
        } else if !names.is_empty() {
            subscription.wildcard = false;
        }
        subscription.names = names.iter().cloned().collect();
        if !subscription.wildcard {
            let names = &subscription.names;
            subscription.sent.retain(|name, _| names.contains(name));
        }
        self.push(number, type_url);
    }

    // -- observation --------------------------------------------------------

    /// The names that open streams subscribe to.
    pub(crate) fn subscriptions(&self, type_url: &str) -> BTreeSet<String> {
        self.subscriptions_of(type_url).flat_map(|s| s.names.iter().cloned()).collect()
    }

    /// The ACK of the latest response of a type, once all open streams that received one have accepted it.
    pub(crate) fn ack(&self, type_url: &str) -> Option<Arc<Request>> {
        let mut ack = None;
        for last in self.subscriptions_of(type_url).filter_map(|s| s.last.as_ref()) {
            ack = Some(last.verdict.as_ref().filter(|verdict| !verdict.is_nack())?);
        }
        ack.cloned()
    }

    /// A NACK of the latest response of a type.
    pub(crate) fn nack(&self, type_url: &str) -> Option<Arc<Request>> {
        let mut verdicts = self.subscriptions_of(type_url).filter_map(|s| s.last.as_ref()?.verdict.as_ref());
        verdicts.find(|verdict| verdict.is_nack()).cloned()
    }

    fn subscriptions_of(&self, type_url: &str) -> impl Iterator<Item = &Subscription> {
        self.streams.values().filter_map(move |stream| stream.subscriptions.get(type_url))
    }
}

impl Stream {
    fn send(&mut self, response: &DiscoveryResponse) {
        let subscription = self.subscriptions.entry(response.type_url.clone()).or_default();
        subscription.last = Some(Response {
            version: response.version_info.clone(),
            nonce: response.nonce.clone(),
            verdict: None,
        });
        // A closed outbox means that the stream has just ended.
        let _ = self.outbox.send(Ok(Some(response.encode_to_vec().into())));
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Set(Resource),
    Remove(String, String),
}

impl Change {
    fn type_url(&self) -> &str {
        match self {
            Self::Set(resource) => &resource.type_url,
            Self::Remove(type_url, _) => type_url,
        }
    }
}
