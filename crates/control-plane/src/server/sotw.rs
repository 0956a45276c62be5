//! A stream of the state-of-the-world protocol, without IO: requests and snapshots in, responses out.

use std::collections::BTreeMap;
use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use super::snapshot::Snapshot;
use super::streams::Protocol;
use super::subscription::{Answer, News, Sent, Subscription, must_wait};

/// The state of a stream.
#[derive(Debug, Default)]
pub(crate) struct Sotw {
    subscriptions: BTreeMap<String, Subscription>,
    nonces: u64,
}

impl Protocol for Sotw {
    const IS_DELTA: bool = false;
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn on_request(&mut self, request: &DiscoveryRequest) -> Option<News> {
        let type_url = request.type_url.as_str();
        let is_first = !self.subscriptions.contains_key(type_url);
        let subscription = self.subscriptions.entry(type_url.to_owned()).or_default();
        if let Some(last) = subscription.last.as_ref().filter(|_| !request.response_nonce.is_empty())
            && last.nonce != request.response_nonce
        {
            // It answers an older response: the answer to the latest one is still to come, with the latest names.
            return None;
        }
        let news = subscription.answer(&request.response_nonce, request.error_detail.as_ref());
        let names = &request.resource_names;
        // An empty list is a wildcard in the first request of a type; later it ends all subscriptions.
        if Subscription::is_listed(type_url) {
            let all = names.iter().any(|name| name == "*");
            if (is_first && names.is_empty()) || all {
                subscription.wildcard = true;
            } else if !names.is_empty() {
                subscription.wildcard = false;
            }
        }
        subscription.names = names.iter().cloned().collect();
        if !subscription.wildcard {
            let names = &subscription.names;
            subscription.sent.retain(|name, _| names.contains(name));
        }
        news
    }

    fn next_response(&mut self, snapshot: &Snapshot) -> Option<DiscoveryResponse> {
        let mut types: Vec<&String> = self.subscriptions.keys().collect();
        types.sort_by_key(|type_url| Snapshot::rank(type_url));
        let types: Vec<String> = types.into_iter().cloned().collect();
        types.into_iter().find_map(|type_url| {
            if must_wait(&self.subscriptions, &type_url) { None } else { self.response(&type_url, snapshot) }
        })
    }

    fn subscriptions(&self) -> &BTreeMap<String, Subscription> {
        &self.subscriptions
    }
}

impl Sotw {
    fn response(&mut self, type_url: &str, snapshot: &Snapshot) -> Option<DiscoveryResponse> {
        let kind = snapshot.of_type(type_url)?;
        let subscription = self.subscriptions.get_mut(type_url)?;
        let wanted = subscription.wanted(kind);
        let is_new = |name: &str, hash: u64| subscription.sent.get(name) != Some(&hash);
        let any_new = wanted.iter().any(|(name, entry)| is_new(name, entry.hash));
        let gone = subscription.sent.keys().any(|name| !kind.resources.contains_key(name));
        // A response of listeners or clusters is the complete list: absence means deletion.
        let is_listed = Subscription::is_listed(type_url);
        let sent = wanted.iter().map(|(name, entry)| ((*name).clone(), entry.hash)).collect();
        let is_due = any_new || (gone && is_listed);
        if !is_due {
            subscription.sent = sent;
            return None;
        }
        let sending = wanted.iter().filter(|(name, entry)| is_listed || is_new(name, entry.hash));
        let resources = sending.map(|(_, entry)| (*entry.value).clone()).collect();
        self.nonces += 1;
        let (version, nonce) = (kind.version.to_string(), self.nonces.to_string());
        subscription.sent = sent;
        subscription.last =
            Some(Sent { version: version.clone(), nonce: nonce.clone(), answer: Answer::Pending });
        Some(DiscoveryResponse {
            version_info: version,
            type_url: type_url.to_owned(),
            nonce,
            resources,
            ..Default::default()
        })
    }
}

/// The latest snapshot of a plane.
pub(crate) type Current = tokio::sync::watch::Receiver<Arc<Snapshot>>;
