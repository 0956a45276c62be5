//! The resource cache: resources by name, timers of missing ones, and an index by bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proxyless_sans_io::Time;

use super::messages::Any;
use super::resource_state::{Received, ResourceState, Standing, Wait};
use crate::resource::{Resource, ResourceType};

/// The time for which an unsubscribed resource is kept and updated. Servers ignore a request that crosses one of their
/// responses, so they may have missed the unsubscription, and would not resend a resource that is subscribed again
/// soon. Every ACK repeats the unsubscription, so the server has read one of them by then, unless answers are still
/// unsent.
const LIMBO: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Cache {
    types: BTreeMap<ResourceType, TypeCache>,
    timers: BTreeSet<(Time, ResourceType, Arc<str>)>,
    /// The resources in limbo, by expiry.
    limbo: BTreeSet<(Time, ResourceType, Arc<str>)>,
}

#[derive(Debug, Default)]
pub(super) struct TypeCache {
    resources: BTreeMap<Arc<str>, ResourceState>,
    /// The names of cached resources by their bytes, to recognise an unchanged resource without decoding it. The bytes
    /// include the name, so different resources have different bytes.
    by_bytes: BTreeMap<Bytes, Arc<str>>,
}

impl TypeCache {
    /// The name of the cached resource with exactly these bytes.
    pub(super) fn name_of(&self, any: &Any) -> Option<Arc<str>> {
        let name = self.by_bytes.get(&any.value)?;
        // The key is the value in use, so only the type remains to be compared.
        let data = self.resources.get(name)?.data.as_ref()?;
        (data.raw.type_url == any.type_url).then(|| name.clone())
    }

    /// Whether the resource is watched or in limbo.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.resources.contains_key(name)
    }

    /// The resource's value, if one is in use.
    pub(super) fn resource(&self, name: &str) -> Option<&Resource> {
        self.resources.get(name)?.data.as_ref().map(|data| &data.resource)
    }

    fn forget_bytes(&mut self, name: &str) {
        if let Some(data) = self.resources.get(name).and_then(|state| state.data.as_ref()) {
            self.by_bytes.remove(&data.raw.value);
        }
    }
}

impl Cache {
    pub(super) fn of_type(&self, resource_type: ResourceType) -> Option<&TypeCache> {
        self.types.get(&resource_type)
    }

    /// All resources, by type and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceType, &Arc<str>, &ResourceState)> {
        self.types.iter().flat_map(|(&kind, of_type)| {
            of_type.resources.iter().map(move |(name, state)| (kind, name, state))
        })
    }

    /// The names of all resources of a type, unwatched ones included.
    pub(super) fn names(&self, resource_type: ResourceType) -> Vec<Arc<str>> {
        self.types
            .get(&resource_type)
            .map(|of_type| of_type.resources.keys().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn get_mut(&mut self, resource_type: ResourceType, name: &str) -> Option<&mut ResourceState> {
        self.types.get_mut(&resource_type)?.resources.get_mut(name)
    }

    pub(super) fn get_or_insert(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
    ) -> &mut ResourceState {
        self.types.entry(resource_type).or_default().resources.entry(name.clone()).or_default()
    }

    pub(super) fn remove(&mut self, resource_type: ResourceType, name: &str) {
        self.stop_timer(resource_type, name);
        let Some(of_type) = self.types.get_mut(&resource_type) else { return };
        of_type.forget_bytes(name);
        if let Some((name, ResourceState { limbo: Some(until), .. })) = of_type.resources.remove_entry(name) {
            self.limbo.remove(&(until, resource_type, name));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Stores a valid resource, and releases the response that contained it.
    pub(super) fn store(
        &mut self,
        kind: ResourceType,
        name: &Arc<str>,
        (resource, raw): (Resource, Any),
        from: Received<'_>,
    ) {
        let Some(of_type) = self.types.get_mut(&kind) else { return };
        of_type.forget_bytes(name);
        let Some(state) = of_type.resources.get_mut(name) else { return };
        let raw = Any { type_url: raw.type_url, value: Bytes::copy_from_slice(&raw.value) };
        of_type.by_bytes.insert(raw.value.clone(), name.clone());
        state.replace_data(resource, raw, from);
    }

    /// Drops the cached value of a resource.
    pub(super) fn drop_data(&mut self, resource_type: ResourceType, name: &str) {
        let Some(of_type) = self.types.get_mut(&resource_type) else { return };
        of_type.forget_bytes(name);
        if let Some(state) = of_type.resources.get_mut(name) {
            state.data = None;
        }
    }

    /// Whether all watched resources of the type are cached.
    pub(super) fn holds_all(&self, resource_type: ResourceType) -> bool {
        let held = |state: &ResourceState| state.data.is_some() || state.watchers.is_empty();
        self.types.get(&resource_type).is_some_and(|of_type| of_type.resources.values().all(held))
    }

    /// The names to list in a request for the type, which count as requested from now on. Unwatched resources are left
    /// out and go to limbo.
    pub(super) fn subscribe(&mut self, resource_type: ResourceType, now: Time) -> Vec<Arc<str>> {
        let Self { types, timers, limbo } = self;
        let Some(of_type) = types.get_mut(&resource_type) else { return Vec::new() };
        let mut names = Vec::new();
        for (name, state) in &mut of_type.resources {
            if state.watchers.is_empty() {
                if let Wait::Running { deadline, .. } = state.wait {
                    timers.remove(&(deadline, resource_type, name.clone()));
                }
                state.wait = Wait::Unsent;
                let until = *state.limbo.get_or_insert(now + LIMBO);
                limbo.insert((until, resource_type, name.clone()));
                continue;
            }
            if let Some(until) = state.limbo.take() {
                limbo.remove(&(until, resource_type, name.clone()));
            }
            if state.wait == Wait::Unsent {
                state.wait = Wait::Sending;
            }
            names.push(name.clone());
        }
        names
    }

    /// Removes the resources whose limbo has expired. The limbo of a type with unsent answers is extended: the server
    /// ignores requests with stale nonces, so it may not have seen an unsubscription yet.
    pub(super) fn end_limbo(&mut self, now: Time, has_unsent: impl Fn(ResourceType) -> bool) {
        while let Some((until, ..)) = self.limbo.first() {
            if *until > now {
                return;
            }
            let Some((_, resource_type, name)) = self.limbo.pop_first() else { return };
            match self.get_mut(resource_type, &name) {
                Some(state) if state.watchers.is_empty() && has_unsent(resource_type) => {
                    state.limbo = Some(now + LIMBO);
                    self.limbo.insert((now + LIMBO, resource_type, name));
                }
                Some(state) if state.watchers.is_empty() => self.remove(resource_type, &name),
                Some(state) => state.limbo = None,
                None => {}
            }
        }
    }

    fn forget_unwatched(&mut self, resource_type: ResourceType) {
        let Some(of_type) = self.types.get(&resource_type) else { return };
        let unwatched = of_type.resources.iter().filter(|(_, state)| state.watchers.is_empty());
        for name in unwatched.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.remove(resource_type, &name);
        }
    }

    /// the request for a type was sent, so the timers of its uncached resources start.
    pub(super) fn start_timers(&mut self, resource_type: ResourceType, now: Time, timeout: Duration) {
        let Some(of_type) = self.types.get_mut(&resource_type) else { return };
        for (name, state) in of_type.resources.iter_mut().filter(|(_, state)| state.wait == Wait::Sending) {
            if state.data.is_some() && state.standing == Standing::Sure {
                state.wait = Wait::Over;
            } else {
                let deadline = now + timeout;
                state.wait = Wait::Running { since: now, deadline };
                self.timers.insert((deadline, resource_type, name.clone()));
            }
        }
    }

    /// The server sent something about the resource: stops its timer.
    pub(super) fn seen(&mut self, resource_type: ResourceType, name: &str) {
        self.stop_timer(resource_type, name);
        if let Some(state) = self.get_mut(resource_type, name) {
            // The server knows already that an unwatched resource is unsubscribed.
            if state.limbo.is_none() {
                state.wait = Wait::Over;
            }
            state.standing = Standing::Sure;
        }
    }

    /// The stream ended: stops all timers; pending unsubscriptions are complete.
    pub(super) fn stream_ended(&mut self) {
        self.timers.clear();
        ResourceType::ALL.into_iter().for_each(|resource_type| self.forget_unwatched(resource_type));
        for state in self.types.values_mut().flat_map(|of_type| of_type.resources.values_mut()) {
            state.wait = Wait::Unsent;
            state.standing = Standing::Sure;
            state.limbo = None;
        }
        self.limbo.clear();
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(deadline, ..)| *deadline)
    }

    /// The next resource whose timer has expired, and the time at which it was started.
    pub(super) fn expire(&mut self, now: Time) -> Option<(ResourceType, Arc<str>, Time)> {
        while self.next_deadline()? <= now {
            let (_, resource_type, name) = self.timers.pop_first()?;
            let Some(state) = self.get_mut(resource_type, &name) else { continue };
            let since = match state.wait {
                Wait::Running { since, .. } => since,
                _ => now,
            };
            state.wait = Wait::Over;
            match std::mem::take(&mut state.standing) {
                // The server sent nothing, so it never noticed the unsubscription: the cached value is current.
                Standing::Doubtful => continue,
                Standing::Absent => self.drop_data(resource_type, &name),
                Standing::Sure => {}
            }
            return Some((resource_type, name, since));
        }
        None
    }

    fn stop_timer(&mut self, resource_type: ResourceType, name: &str) {
        let wait = self.types.get(&resource_type).and_then(|t| t.resources.get_key_value(name));
        if let Some((name, ResourceState { wait: Wait::Running { deadline, .. }, .. })) = wait {
            self.timers.remove(&(*deadline, resource_type, name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ClusterLoadAssignment;

    #[test]
    fn index_holds_the_bytes_in_use_and_no_others() {
        let (kind, name) = (ResourceType::ClusterLoadAssignment, Arc::from("e"));
        let mut cache = Cache::default();
        let accept = |cache: &mut Cache, bytes: &'static [u8]| {
            let resource = Resource::ClusterLoadAssignment(Arc::new(ClusterLoadAssignment::default()));
            let raw = Any { type_url: String::new(), value: Bytes::from_static(bytes) };
            let version = "1".into();
            cache.store(kind, &name, (resource, raw), Received { version: &version, time: Time::ZERO });
        };
        let indexed = |cache: &Cache| cache.types[&kind].by_bytes.keys().cloned().collect::<Vec<_>>();
        cache.get_or_insert(kind, &name);
        accept(&mut cache, b"one");
        accept(&mut cache, b"two");
        assert_eq!(indexed(&cache), [Bytes::from_static(b"two")]);
        cache.drop_data(kind, &name);
        assert!(indexed(&cache).is_empty());
        accept(&mut cache, b"three");
        cache.remove(kind, &name);
        assert!(indexed(&cache).is_empty());
    }
}
