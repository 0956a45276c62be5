//! The management server: serves a [`Mesh`] over one ADS stream, with faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message as _, Name as _};
use proxyless_xds::resource::ResourceType;

use crate::script::config::{Key, Mesh};
use crate::script::{Change, Fault, ServerHabits};
use crate::servers::ads_model::Response;
use crate::servers::encode;

/// The management server.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// The resources.
    pub(crate) mesh: Mesh,
    /// The delay of responses.
    pub(crate) delay: Duration,
    /// The time that a stream takes to open.
    pub(crate) open_delay: Duration,
    /// The time until HTTP/2 sends a request.
    pub(crate) write_delay: Duration,
    /// The response to new streams.
    pub(crate) welcome: Welcome,
    faults: BTreeMap<Key, Fault>,
    habits: ServerHabits,
    /// The number of changes per type: the version of its responses.
    versions: BTreeMap<ResourceType, u64>,
    /// The version of the last change of each resource.
    changed: BTreeMap<Key, u64>,
    /// The resources that the client has accepted and still subscribes to, with the version of their last change.
    held: BTreeMap<Key, u64>,
    stream: Option<Stream>,
    nonces: u64,
}

/// The response to new streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Welcome {
    /// They open.
    #[default]
    Accepted,
    /// The connection is refused.
    Refused,
    /// The server does not implement the service.
    NoService,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    types: BTreeMap<ResourceType, Subscription>,
}

/// The client's subscription to a type.
#[derive(Debug, Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The resources that were not sent yet, or were rejected.
    unsent: BTreeSet<String>,
    /// The nonce of the latest response, until the client has answered it.
    sent: Option<Sent>,
    /// Whether a response is being prepared.
    preparing: bool,
    /// Whether another response follows when the last one is answered.
    once_answered: bool,
}

#[derive(Debug)]
struct Sent {
    nonce: String,
    names: BTreeSet<String>,
    version: u64,
    answered: bool,
}

/// A response in transit.
#[derive(Debug)]
pub(crate) struct Pushed {
    /// The encoded response.
    pub(crate) bytes: Bytes,
    /// The verdict that the client should reach.
    pub(crate) response: Response,
}

impl ControlPlane {
    /// A server for this mesh.
    pub(crate) fn new(mesh: Mesh, habits: ServerHabits) -> Self {
        Self {
            mesh,
            delay: Duration::ZERO,
            open_delay: Duration::ZERO,
            write_delay: Duration::ZERO,
            welcome: Welcome::default(),
            faults: BTreeMap::new(),
            habits,
            versions: ResourceType::ALL.into_iter().map(|resource_type| (resource_type, 1)).collect(),
            changed: BTreeMap::new(),
            held: BTreeMap::new(),
            stream: None,
            nonces: 0,
        }
    }

    /// The client has opened a stream.
    pub(crate) fn open(&mut self, id: u64) {
        self.stream = Some(Stream { id, types: BTreeMap::new() });
    }

    /// The stream ends. Returns its id.
    pub(crate) fn close(&mut self) -> Option<u64> {
        self.stream.take().map(|stream| stream.id)
    }

    /// The open stream.
    pub(crate) fn stream(&self) -> Option<u64> {
        self.stream.as_ref().map(|stream| stream.id)
    }

    /// A resource changes. Returns the type whose response must be prepared now.
    pub(crate) fn set(&mut self, change: Change) -> Option<ResourceType> {
        let key = change.key();
        self.mesh.apply(change);
        self.touch(key?)
    }

    /// A resource is removed.
    pub(crate) fn remove(&mut self, key: Key) -> Option<ResourceType> {
        self.mesh.remove(&key);
        self.touch(key)
    }

    /// A resource is served with a fault.
    pub(crate) fn break_resource(&mut self, key: Key, fault: Fault) -> Option<ResourceType> {
        self.faults.insert(key.clone(), fault);
        self.touch(key)
    }

    /// A resource is served correctly.
    pub(crate) fn heal(&mut self, key: Key) -> Option<ResourceType> {
        self.faults.remove(&key)?;
        self.touch(key)
    }

    /// All resources are served correctly.
    pub(crate) fn heal_all(&mut self) -> Vec<ResourceType> {
        let keys: Vec<Key> = self.faults.keys().cloned().collect();
        keys.into_iter().filter_map(|key| self.heal(key)).collect()
    }

    /// A type is resent.
    pub(crate) fn send_again(&mut self, resource_type: ResourceType) -> Option<ResourceType> {
        let subscription = self.subscription(resource_type)?;
        subscription.unsent.clone_from(&subscription.names);
        self.prepare(resource_type)
    }

    /// Several responses of a type in a row, without waiting for ACKs, where a server may do so.
    pub(crate) fn flood(&mut self, resource_type: ResourceType, count: u32) -> Vec<Pushed> {
        let all = resource_type.all_resources_required_in_sotw() || !self.habits.sends_only_changes;
        let Some(stream) = self.stream().filter(|_| all) else { return Vec::new() };
        (0..count).map_while(|_| self.push(stream, resource_type)).collect()
    }

    /// A request arrives. Returns the type whose response must be prepared now.
    pub(crate) fn request(
        &mut self,
        stream: u64,
        request: &discovery::DiscoveryRequest,
    ) -> Option<ResourceType> {
        let resource_type = ResourceType::from_type_url(&request.type_url)?;
        if self.stream() != Some(stream) {
            return None;
        }
        let names: BTreeSet<String> = request.resource_names.iter().cloned().collect();
        let is_first = !self.stream.as_ref()?.types.contains_key(&resource_type);
        let resends = self.habits.resends_rejected && request.error_detail.is_some();
        if !is_first {
            let subscription = self.subscription(resource_type)?;
            match &subscription.sent {
                // It was sent before the client had read the latest response, whose answer follows.
                Some(sent) if sent.nonce != request.response_nonce => return None,
                Some(_) => self.answered(resource_type, request.error_detail.is_none()),
                None => {}
            }
        }
        if is_first && self.knows(resource_type, &names, &request.version_info) {
            let subscription = Subscription { names, ..Subscription::default() };
            self.stream.as_mut()?.types.insert(resource_type, subscription);
            return None;
        }
        let subscription = self.stream.as_mut()?.types.entry(resource_type).or_default();
        let new: Vec<String> = names.difference(&subscription.names).cloned().collect();
        let gone: Vec<Key> =
            subscription.names.difference(&names).map(|name| (resource_type, name.clone())).collect();
        subscription.names = names;
        let names = &subscription.names;
        subscription.unsent.retain(|name| names.contains(name));
        subscription.unsent.extend(new.iter().cloned());
        let due = std::mem::take(&mut subscription.once_answered) || !new.is_empty() || resends;
        // Resources that the client has unsubscribed from must be resent if it subscribes again.
        for key in gone {
            self.held.remove(&key);
        }
        if due { self.prepare(resource_type) } else { None }
    }

    /// Returns the response that was being prepared.
    pub(crate) fn push(&mut self, stream: u64, resource_type: ResourceType) -> Option<Pushed> {
        if self.stream() != Some(stream) {
            return None;
        }
        let all = resource_type.all_resources_required_in_sotw() || !self.habits.sends_only_changes;
        let subscription = self.subscription(resource_type)?;
        subscription.preparing = false;
        // A server that sends only changes must know the answer to the last ones.
        if !all && subscription.sent.as_ref().is_some_and(|sent| !sent.answered) {
            subscription.once_answered = true;
            return None;
        }
        let wanted = if all { subscription.names.clone() } else { subscription.unsent.clone() };
        let served: BTreeMap<String, (Any, bool)> = wanted
            .into_iter()
            .filter_map(|name| {
                let resource = self.serve(&(resource_type, name.clone()))?;
                Some((name, resource))
            })
            .collect();
        let absence_counts = resource_type.all_resources_required_in_sotw();
        if served.is_empty() && !absence_counts && !self.habits.answers_with_nothing {
            return None;
        }
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        let version = self.versions.get(&resource_type).copied().unwrap_or_default();
        let names: BTreeSet<String> = served.keys().cloned().collect();
        let bad = served.values().any(|(_, bad)| *bad);
        let resources = served.into_values().map(|(any, _)| any).collect();
        let bytes = encode::response(resource_type, resources, &version.to_string(), &nonce);
        let subscription = self.subscription(resource_type)?;
        subscription.unsent.retain(|name| !names.contains(name));
        subscription.sent = Some(Sent { nonce: nonce.clone(), names, version, answered: false });
        Some(Pushed { bytes, response: Response { resource_type, version: version.to_string(), nonce, bad } })
    }

    /// A resource as it is served, and whether it is bad.
    fn serve(&self, key: &Key) -> Option<(Any, bool)> {
        match self.faults.get(key) {
            Some(Fault::Withheld) => None,
            Some(Fault::Bad) => Some((encode::bad_resource(key), true)),
            None => {
                let any = encode::resource(&self.mesh, key)?;
                let wrapper = discovery::Resource::type_url();
                if !self.habits.wraps_all || any.type_url == wrapper {
                    return Some((any, false));
                }
                let wrapped =
                    discovery::Resource { name: key.1.clone(), resource: Some(any), ..Default::default() };
                Some((Any { type_url: wrapper, value: wrapped.encode_to_vec() }, false))
            }
        }
    }

    /// A resource changes.
    fn touch(&mut self, key: Key) -> Option<ResourceType> {
        let version = self.versions.entry(key.0).or_default();
        *version += 1;
        self.changed.insert(key.clone(), *version);
        let subscription = self.subscription(key.0)?;
        if subscription.names.contains(&key.1) {
            subscription.unsent.insert(key.1);
        }
        // A new version is also the time to resend resources that were rejected.
        if subscription.unsent.is_empty() { None } else { self.prepare(key.0) }
    }

    /// The client has answered the latest response of a type.
    fn answered(&mut self, resource_type: ResourceType, accepted: bool) {
        let Some(subscription) = self.subscription(resource_type) else { return };
        let Some(sent) = subscription.sent.as_mut() else { return };
        let names = std::mem::take(&mut sent.names);
        sent.answered = true;
        let version = sent.version;
        if !accepted {
            // Resent with the next change, or at once by servers that resend rejected resources.
            let wanted = names.intersection(&subscription.names).cloned().collect::<Vec<_>>();
            subscription.unsent.extend(wanted);
            return;
        }
        for name in names {
            let key = (resource_type, name);
            let changed = self.changed.get(&key).copied().unwrap_or_default();
            if changed <= version {
                self.held.insert(key, changed);
            }
        }
    }

    /// Whether the client has everything that it requests, by its own account.
    fn knows(&self, resource_type: ResourceType, names: &BTreeSet<String>, version: &str) -> bool {
        let current = self.versions.get(&resource_type).is_some_and(|current| current.to_string() == version);
        let has = |name: &String| {
            let key = (resource_type, name.clone());
            let held = self.held.get(&key).copied();
            held.is_some() && held == Some(self.changed.get(&key).copied().unwrap_or_default())
        };
        self.habits.trusts_versions && current && names.iter().all(has)
    }

    fn prepare(&mut self, resource_type: ResourceType) -> Option<ResourceType> {
        let subscription = self.subscription(resource_type)?;
        (!std::mem::replace(&mut subscription.preparing, true)).then_some(resource_type)
    }

    fn subscription(&mut self, resource_type: ResourceType) -> Option<&mut Subscription> {
        self.stream.as_mut()?.types.get_mut(&resource_type)
    }
}
