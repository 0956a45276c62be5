//! A stream of the incremental protocol, without IO: requests and snapshots in, responses out.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Wrapper,
};
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};

use super::snapshot::{Entry, Snapshot};
use super::streams::Protocol;
use super::subscription::{Answer, News, Sent, Subscription, must_wait};

/// The state of a stream.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    subscriptions: BTreeMap<String, Subscription>,
    /// Names that were asked for and do not exist: the client is told once.
    told_missing: BTreeMap<String, Vec<String>>,
    nonces: u64,
}

impl Protocol for Delta {
    const IS_DELTA: bool = true;
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn on_request(&mut self, request: &DeltaDiscoveryRequest) -> Option<News> {
        let type_url = request.type_url.as_str();
        let is_first = !self.subscriptions.contains_key(type_url);
        let subscription = self.subscriptions.entry(type_url.to_owned()).or_default();
        let news = subscription.answer(&request.response_nonce, request.error_detail.as_ref());
        if is_first {
            for (name, version) in &request.initial_resource_versions {
                subscription.sent.insert(name.clone(), u64::from_str_radix(version, 16).unwrap_or(0));
            }
        }
        let subscribed = &request.resource_names_subscribe;
        let legacy_wildcard = is_first && subscribed.is_empty() && Subscription::is_listed(type_url);
        if legacy_wildcard || subscribed.iter().any(|name| name == "*") {
            subscription.wildcard = true;
        }
        let missing = self.told_missing.entry(type_url.to_owned()).or_default();
        for name in subscribed.iter().filter(|name| *name != "*") {
            // A name that is subscribed again is sent again.
            if !is_first {
                subscription.sent.remove(name);
            }
            missing.retain(|told| told != name);
            subscription.names.insert(name.clone());
        }
        for name in &request.resource_names_unsubscribe {
            if name == "*" {
                subscription.wildcard = false;
            }
            subscription.names.remove(name);
            if !subscription.wildcard {
                subscription.sent.remove(name);
            }
        }
        news
    }

    fn next_response(&mut self, snapshot: &Snapshot) -> Option<DeltaDiscoveryResponse> {
        let mut types: Vec<String> = self.subscriptions.keys().cloned().collect();
        types.sort_by_key(|type_url| Snapshot::rank(type_url));
        types.into_iter().find_map(|type_url| {
            if must_wait(&self.subscriptions, &type_url) { None } else { self.response(&type_url, snapshot) }
        })
    }

    fn subscriptions(&self) -> &BTreeMap<String, Subscription> {
        &self.subscriptions
    }
}

impl Delta {
    fn response(&mut self, type_url: &str, snapshot: &Snapshot) -> Option<DeltaDiscoveryResponse> {
        let empty = super::snapshot::TypeSnapshot::default();
        let kind = snapshot.of_type(type_url).unwrap_or(&empty);
        let subscription = self.subscriptions.get_mut(type_url)?;
        let missing = self.told_missing.entry(type_url.to_owned()).or_default();
        let wanted = subscription.wanted(kind);
        let new: Vec<(String, Entry)> = wanted
            .iter()
            .filter(|(name, entry)| subscription.sent.get(*name) != Some(&entry.hash))
            .map(|(name, entry)| ((*name).clone(), (*entry).clone()))
            .collect();
        let mut removed: Vec<String> =
            subscription.sent.keys().filter(|name| !kind.resources.contains_key(*name)).cloned().collect();
        missing.retain(|name| !kind.resources.contains_key(name));
        let unknown = subscription.names.iter().filter(|name| {
            !kind.resources.contains_key(*name) && !missing.contains(name) && !removed.contains(name)
        });
        removed.extend(unknown.cloned().collect::<Vec<_>>());
        if new.is_empty() && removed.is_empty() {
            return None;
        }
        for (name, entry) in &new {
            subscription.sent.insert(name.clone(), entry.hash);
        }
        for name in &removed {
            subscription.sent.remove(name);
            missing.push(name.clone());
        }
        self.nonces += 1;
        let (version, nonce) = (kind.version.to_string(), self.nonces.to_string());
        subscription.last =
            Some(Sent { version: version.clone(), nonce: nonce.clone(), answer: Answer::Pending });
        Some(DeltaDiscoveryResponse {
            system_version_info: version,
            type_url: type_url.to_owned(),
            nonce,
            resources: new.iter().map(|(name, entry)| wrap(name, entry)).collect(),
            removed_resources: removed,
            ..Default::default()
        })
    }
}

/// A resource with its name and version. One that is wrapped already, because it has no name of its own, is unwrapped.
fn wrap(name: &str, entry: &Entry) -> Wrapper {
    let value: &Any = &entry.value;
    let inner = match value.type_url.rsplit('/').next() == Some(Wrapper::full_name().as_str()) {
        true => Wrapper::decode(&value.value[..]).ok().and_then(|wrapper| wrapper.resource),
        false => None,
    };
    Wrapper {
        name: name.to_owned(),
        version: format!("{:x}", entry.hash),
        resource: Some(inner.unwrap_or_else(|| value.clone())),
        ..Default::default()
    }
}
