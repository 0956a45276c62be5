//! The resource cache: resources by name, timers of missing ones, and an index by bytes.

mod limbo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{SmallMap, Time};

use self::limbo::LIMBO;
use super::ads_stream::{AdsStream, Doubt};
use super::authorities::AuthorityId;
use super::ids::{ServerId, WatchKey};
use super::messages::{Any, DetachedAny};
use super::resource_state::{Received, ResourceState, Standing, Wait};
use crate::resource::{Resource, ResourceType};

/// How an authority uses a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    None,
    /// Its resources are requested, and used as soon as it answers: a server of higher priority than the active one.
    Waiting,
    /// Its resources are used.
    Active,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    types: BTreeMap<ResourceType, TypeCache>,
    timers: BTreeSet<(Time, ResourceType, Arc<str>)>,
    /// The resources in limbo, by expiry.
    limbo: BTreeSet<(Time, ResourceType, Arc<str>)>,
    /// The resources that are [`Standing::Resubscribed`], and perhaps some that were. The end of the time of
    /// [`AdsStream::listened`] in which a response may have crossed the unsubscription.
    resubscribed: BTreeMap<(ResourceType, Arc<str>), Duration>,
}

#[derive(Debug, Default)]
pub(super) struct TypeCache {
    resources: SmallMap<Arc<str>, ResourceState>,
    /// The names of cached resources by their bytes, to recognise an unchanged resource without decoding it. The bytes
    /// include the name, so different resources have different bytes.
    by_bytes: SmallMap<Arc<[u8]>, Arc<str>>,
    /// Greater after each change that may affect the names in a request.
    revision: u64,
    /// Whether a resource may be [`Wait::Sending`].
    sending: bool,
}

impl TypeCache {
    /// The name of the cached resource with exactly these bytes, if it fits.
    pub(super) fn name_of(&self, any: &Any, fits: impl Fn(&ResourceState) -> bool) -> Option<Arc<str>> {
        let name = self.by_bytes.get(&*any.value)?;
        // The key is the value in use, so only the type remains to be compared.
        let data = self.resources.get(name).filter(|state| fits(state))?.data.as_ref()?;
        (data.raw.type_url == any.type_url()).then(|| name.clone())
    }

    /// The resource, if it is watched or in limbo.
    pub(super) fn get(&self, name: &str) -> Option<&ResourceState> {
        self.resources.get(name)
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

    pub(super) fn get(&self, resource_type: ResourceType, name: &str) -> Option<&ResourceState> {
        self.types.get(&resource_type)?.resources.get(name)
    }

    /// The names of the resources of a type whose authority fits, unwatched ones included.
    pub(super) fn names(
        &self,
        resource_type: ResourceType,
        fits: impl Fn(AuthorityId) -> bool,
    ) -> impl Iterator<Item = &Arc<str>> {
        let resources =
            self.types.get(&resource_type).into_iter().flat_map(|of_type| of_type.resources.iter());
        resources.filter(move |(_, state)| fits(state.authority)).map(|(name, _)| name)
    }

    pub(super) fn get_mut(&mut self, resource_type: ResourceType, name: &str) -> Option<&mut ResourceState> {
        self.types.get_mut(&resource_type)?.resources.get_mut(name)
    }

    /// Adds a watcher of a resource, and the resource if it is not known. `doubt` is about its unsubscription, if it is in
    /// limbo.
    pub(super) fn watch(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        authority: AuthorityId,
        watch: WatchKey,
        doubt: Option<Doubt>,
    ) -> &mut ResourceState {
        if self.is_in_limbo(resource_type, name) {
            self.revive(resource_type, name, doubt);
        }
        let of_type = self.types.entry(resource_type).or_default();
        of_type.revision += 1;
        let state = of_type.resources.get_or_insert_with(name.clone(), || ResourceState::new(authority));
        state.watchers.insert(watch, ());
        state
    }

    /// Removes a watcher of a resource.
    pub(super) fn unwatch(
        &mut self,
        resource_type: ResourceType,
        name: &str,
        watch: WatchKey,
    ) -> Option<&mut ResourceState> {
        let of_type = self.types.get_mut(&resource_type)?;
        of_type.revision += 1;
        let state = of_type.resources.get_mut(name)?;
        state.watchers.remove(&watch);
        Some(state)
    }

    /// Greater than before if [`Self::subscribe`] may have another result or effect, unless the use of an authority has
    /// changed.
    pub(super) fn revision(&self, resource_type: ResourceType) -> u64 {
        self.types.get(&resource_type).map_or(0, |of_type| of_type.revision)
    }

    pub(super) fn remove(&mut self, resource_type: ResourceType, name: &str) {
        self.stop_timer(resource_type, name);
        let Some(of_type) = self.types.get_mut(&resource_type) else { return };
        of_type.revision += 1;
        of_type.forget_bytes(name);
        let Some((name, state)) = of_type.resources.remove_entry(name) else { return };
        if let Some(until) = state.limbo {
            self.limbo.remove(&(until, resource_type, Arc::clone(&name)));
        }
        self.resubscribed.remove(&(resource_type, name));
    }

    /// Removes all resources of an authority.
    pub(super) fn forget(&mut self, authority: AuthorityId) {
        self.remove_where(|state| state.authority == authority);
    }

    fn remove_where(&mut self, gone: impl Fn(&ResourceState) -> bool) {
        let gone = self.iter().filter(|(_, _, state)| gone(state));
        let gone: Vec<_> = gone.map(|(resource_type, name, _)| (resource_type, name.clone())).collect();
        gone.into_iter().for_each(|(resource_type, name)| self.remove(resource_type, &name));
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
        let Some(name) = of_type.resources.get_key_value(name).map(|(name, _)| Arc::clone(name)) else {
            return;
        };
        let Some(state) = of_type.resources.get_mut(&name) else { return };
        let raw = DetachedAny::new(&raw, kind);
        of_type.by_bytes.insert(Arc::clone(&raw.value), name);
        state.replace_data(resource, raw, from);
    }

    /// The server sent the same bytes of these resources again. Returns those of which this ends a wait or an error, or
    /// that another server had sent; nothing is done with them. Costs little if the names are in order.
    pub(super) fn confirm(
        &mut self,
        kind: ResourceType,
        names: Vec<Arc<str>>,
        from: Received<'_>,
    ) -> Vec<Arc<str>> {
        let Some(TypeCache { resources, .. }) = self.types.get_mut(&kind) else { return Vec::new() };
        let mut unsettled = Vec::new();
        let mut names = names.into_iter().peekable();
        while let Some(first) = names.peek() {
            let mut is_known = false;
            // Those that follow each other in the cache too, usually all.
            for (known, state) in resources.iter_mut_from(&**first) {
                let Some(name) = names.next_if_eq(known) else { break };
                is_known = true;
                if !state.confirm_settled(from) {
                    unsettled.push(name);
                }
            }
            if !is_known {
                names.next();
            }
        }
        unsettled
    }

    /// Drops the cached value of a resource.
    pub(super) fn drop_data(&mut self, resource_type: ResourceType, name: &str) {
        let Some(of_type) = self.types.get_mut(&resource_type) else { return };
        of_type.forget_bytes(name);
        if let Some(state) = of_type.resources.get_mut(name) {
            state.data = None;
        }
    }

    /// Whether the authority has resources, watched or in limbo.
    pub(super) fn knows(&self, authority: AuthorityId) -> bool {
        self.iter().any(|(_, _, state)| state.authority == authority)
    }

    /// A71-09: whether a watched resource of the authority is neither in use nor known to be absent.
    pub(super) fn misses(&self, authority: AuthorityId) -> bool {
        self.iter().any(|(_, _, state)| state.authority == authority && state.is_missing())
    }

    /// Whether all watched resources of the type whose authority fits are cached as this server sent them.
    pub(super) fn holds_all(
        &self,
        resource_type: ResourceType,
        server: ServerId,
        fits: impl Fn(AuthorityId) -> bool,
    ) -> bool {
        let held = |state: &ResourceState| {
            !fits(state.authority) || state.source() == Some(server) || state.watchers.is_empty()
        };
        self.types.get(&resource_type).is_some_and(|of_type| of_type.resources.values().all(held))
    }

    /// The names to list in a request for the type, in order: those of watched resources. `use_of` tells how their
    /// authority uses the server. The resources of one that uses its data count as requested from now on; unwatched
    /// ones go to limbo.
    pub(super) fn subscribe(
        &mut self,
        resource_type: ResourceType,
        now: Time,
        use_of: impl Fn(AuthorityId) -> Use,
    ) -> Vec<Arc<str>> {
        let Self { types, timers, limbo, .. } = self;
        let Some(of_type) = types.get_mut(&resource_type) else { return Vec::new() };
        let mut names = Vec::new();
        for (name, state) in of_type.resources.iter_mut() {
            match use_of(state.authority) {
                Use::None => continue,
                Use::Waiting if state.watchers.is_empty() => continue,
                Use::Waiting => {
                    names.push(name.clone());
                    continue;
                }
                Use::Active => {}
            }
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
                of_type.sending = true;
            }
            names.push(name.clone());
        }
        names
    }

    /// the request for a type was sent, so the timers of its uncached resources start.
    /// Only those count whose authority fits.
    pub(super) fn start_timers(
        &mut self,
        resource_type: ResourceType,
        now: Time,
        timeout: Duration,
        fits: impl Fn(AuthorityId) -> bool,
    ) {
        // Most requests only acknowledge a response.
        let Some(of_type) = self.types.get_mut(&resource_type).filter(|of_type| of_type.sending) else {
            return;
        };
        of_type.sending = false;
        for (name, state) in of_type.resources.iter_mut().filter(|(_, state)| state.wait == Wait::Sending) {
            if !fits(state.authority) {
                of_type.sending = true;
                continue;
            }
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

    /// The stream ended, or is another one, for the authorities that fit: stops all timers; pending
    /// unsubscriptions are complete.
    pub(super) fn stream_ended(&mut self, fits: impl Fn(AuthorityId) -> bool) {
        self.remove_where(|state| state.watchers.is_empty() && fits(state.authority));
        for (&resource_type, of_type) in &mut self.types {
            of_type.revision += 1;
            for (name, state) in of_type.resources.iter_mut().filter(|(_, state)| fits(state.authority)) {
                if let Wait::Running { deadline, .. } = state.wait {
                    self.timers.remove(&(deadline, resource_type, name.clone()));
                }
                if let Some(until) = state.limbo.take() {
                    self.limbo.remove(&(until, resource_type, name.clone()));
                }
                state.wait = Wait::Unsent;
                state.standing = Standing::Sure;
            }
        }
    }

    /// The authority uses the data of this stream from now on, on which its resources may have been requested already.
    /// The cached values came from another server.
    pub(super) fn adopt(&mut self, authority: AuthorityId, stream: &AdsStream, now: Time, timeout: Duration) {
        let is_asked = |kind, name: &Arc<str>| stream.has_asked_for(kind, name);
        let gone = |kind, name: &Arc<str>, state: &ResourceState| {
            state.authority == authority && state.watchers.is_empty() && !is_asked(kind, name)
        };
        let gone = self.iter().filter(|(kind, name, state)| gone(*kind, name, state));
        let gone: Vec<_> = gone.map(|(kind, name, _)| (kind, name.clone())).collect();
        gone.into_iter().for_each(|(kind, name)| self.remove(kind, &name));
        for (&kind, of_type) in &mut self.types {
            of_type.revision += 1;
            let own = of_type.resources.iter_mut().filter(|(_, state)| state.authority == authority);
            for (name, state) in own {
                if let Wait::Running { deadline, .. } = state.wait {
                    self.timers.remove(&(deadline, kind, name.clone()));
                }
                if let Some(until) = state.limbo.take() {
                    self.limbo.remove(&(until, kind, name.clone()));
                }
                state.wait = Wait::Unsent;
                // A response that was built before the server saw the name does not delete the resource.
                let accounted = !stream.has_asked(kind) || stream.will_account_for(kind, name);
                let known = state.data.is_some();
                state.standing = if known && !accounted { Standing::Doubtful } else { Standing::Sure };
                if state.watchers.is_empty() {
                    // The server may send it once more.
                    state.limbo = Some(now + LIMBO);
                    self.limbo.insert((now + LIMBO, kind, name.clone()));
                } else if is_asked(kind, name) && known && accounted {
                    state.wait = Wait::Over;
                } else if is_asked(kind, name) {
                    state.wait = Wait::Running { since: now, deadline: now + timeout };
                    self.timers.insert((now + timeout, kind, name.clone()));
                }
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(deadline, ..)| *deadline)
    }

    /// The next resource that did not come in time, and the time at which its timer was started.
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
                // A server that never noticed the unsubscription sends nothing: the cached value is current.
                Standing::Doubtful => continue,
                // The server has said so, however slow it is.
                Standing::Absent => self.drop_data(resource_type, &name),
                Standing::Resubscribed | Standing::Sure => {}
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
    use bytes::Bytes;

    use super::super::ids::{ServerId, WatchId, WatcherId};
    use super::*;
    use crate::resource::ClusterLoadAssignment;

    #[test]
    fn index_holds_the_bytes_in_use_and_no_others() {
        let (kind, name) = (ResourceType::ClusterLoadAssignment, Arc::from("e"));
        let mut cache = Cache::default();
        let accept = |cache: &mut Cache, bytes: &'static [u8]| {
            let resource = Resource::ClusterLoadAssignment(Arc::new(ClusterLoadAssignment::default()));
            let raw = Any { value: Bytes::from_static(bytes), ..Any::default() };
            let version = "1".into();
            let from = Received { server: ServerId(0), version: &version, time: Time::ZERO };
            cache.store(kind, &name, (resource, raw), from);
        };
        let indexed = |cache: &Cache| cache.types[&kind].by_bytes.keys().cloned().collect::<Vec<_>>();
        let watch = WatchKey { watcher: WatcherId(0), watch: WatchId(0) };
        cache.watch(kind, &name, AuthorityId::default(), watch, None);
        accept(&mut cache, b"one");
        accept(&mut cache, b"two");
        assert_eq!(indexed(&cache), [Arc::from(*b"two")]);
        cache.drop_data(kind, &name);
        assert!(indexed(&cache).is_empty());
        accept(&mut cache, b"three");
        cache.remove(kind, &name);
        assert!(indexed(&cache).is_empty());
    }
}
