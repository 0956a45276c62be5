//! The watched resources and their states.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_sans_io::SmallMap;
use proxyless_xds::client::{ResourceError, WatchEvent, WatchId};
use proxyless_xds::resource::{
    AggregateClusterConfig, Cluster, ClusterKind, ClusterLoadAssignment, Listener, Resource, ResourceType,
    RouteConfiguration,
};

use super::DnsName;
use super::cluster_state::decides;

/// The resource, or the error.
pub(super) type ResourceResult<T> = Result<T, Arc<str>>;

/// A type and a name.
pub(super) type Key = (ResourceType, Arc<str>);

/// The resources and names to watch and resolve.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    pub(super) resources: BTreeSet<Key>,
    pub(super) dns: BTreeSet<DnsName>,
}

impl Wanted {
    pub(super) fn resource(&mut self, resource_type: ResourceType, name: &Arc<str>) {
        self.resources.insert((resource_type, Arc::clone(name)));
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.resources.extend(other.resources.iter().cloned());
        self.dns.extend(other.dns.iter().cloned());
    }
}

/// All watched resources.
#[derive(Debug, Default)]
pub(super) struct Resources {
    watched: SmallMap<Key, Watched>,
    keys: SmallMap<WatchId, Key>,
    next_id: u64,
}

#[derive(Debug)]
struct Watched {
    id: WatchId,
    /// `None` until the first event.
    result: Option<ResourceResult<Resource>>,
    /// Whether `result` is only that the control plane is unreachable, which says nothing about the resource.
    unreachable: bool,
    /// A problem that leaves the resource in use.
    ambient: Option<Arc<str>>,
}

/// The effect of an event.
pub(super) enum News {
    /// None: its watch has ended.
    None,
    /// The configurations of the leaves that this resource is a part of, and nothing else: neither the watches nor the
    /// set of usable clusters.
    Leaves(Key),
    /// Anything else.
    Some,
}

/// Defines a method per resource type that returns the result of a watch: `None` if there is none yet.
macro_rules! accessors {
    ($($method:ident: $kind:ident,)*) => {$(
        pub(super) fn $method(&self, name: &Arc<str>) -> Option<ResourceResult<&Arc<$kind>>> {
            self.result(ResourceType::$kind, name, |resource| match resource {
                Resource::$kind(resource) => Some(resource),
                _ => None,
            })
        }
    )*};
}

impl Resources {
    /// Handles an event and returns its effect.
    pub(super) fn on_event(&mut self, watch: WatchId, event: WatchEvent) -> News {
        let Some(key) = self.keys.get(&watch) else { return News::None };
        let Some(watched) = self.watched.get_mut(key) else { return News::None };
        let mut news = News::Some;
        match event {
            WatchEvent::Changed(changed) => {
                if let (Some(Ok(old)), Ok(new)) = (&watched.result, &changed)
                    && concerns_leaves_only(old, new)
                {
                    news = News::Leaves(key.clone());
                }
                match changed {
                    Ok(resource) => (watched.result, watched.unreachable) = (Some(Ok(resource)), false),
                    Err(error) => watched.fail(&error),
                }
                watched.ambient = None;
            }
            WatchEvent::Ambient(None) => watched.ambient = None,
            WatchEvent::Ambient(Some(error)) => match &watched.result {
                // A37-21: the earlier value stays in use.
                Some(Ok(_)) => watched.ambient = Some(text(&error)),
                // A37-20: there is no earlier value.
                _ => watched.fail(&error),
            },
        }
        news
    }

    /// Watches a resource; returns the new watch, or `None` if it is watched already (A37-13, A99-20).
    pub(super) fn watch(&mut self, key: &Key) -> Option<WatchId> {
        if self.watched.contains_key(key) {
            return None;
        }
        let id = WatchId(self.next_id);
        self.next_id += 1;
        self.watched.insert(key.clone(), Watched { id, result: None, unreachable: false, ambient: None });
        self.keys.insert(id, key.clone());
        Some(id)
    }

    /// Ends and returns every watch whose resource is not in `wanted`.
    pub(super) fn retain(&mut self, wanted: &BTreeSet<Key>) -> Vec<WatchId> {
        let mut ended = Vec::new();
        self.watched.retain(|key, watched| {
            let keep = wanted.contains(key);
            if !keep {
                ended.push(watched.id);
            }
            keep
        });
        for id in &ended {
            self.keys.remove(id);
        }
        ended
    }

    accessors! {
        listener: Listener,
        route_config: RouteConfiguration,
        cluster: Cluster,
        endpoints: ClusterLoadAssignment,
        aggregate: AggregateClusterConfig,
    }

    /// The problem of a resource that is still in use.
    pub(super) fn ambient(&self, resource_type: ResourceType, name: &Arc<str>) -> Option<&Arc<str>> {
        self.watched.get(&(resource_type, Arc::clone(name)))?.ambient.as_ref()
    }

    /// Whether the only result about a resource is that the control plane is unreachable.
    pub(super) fn is_unreachable(&self, resource_type: ResourceType, name: &Arc<str>) -> bool {
        let watched = self.watched.get(&(resource_type, Arc::clone(name)));
        watched.is_some_and(|watched| watched.unreachable)
    }

    fn result<'a, T>(
        &'a self,
        resource_type: ResourceType,
        name: &Arc<str>,
        cast: impl Fn(&'a Resource) -> Option<&'a T>,
    ) -> Option<ResourceResult<&'a T>> {
        let result = self.watched.get(&(resource_type, Arc::clone(name)))?.result.as_ref()?;
        Some(match result {
            // The client delivers each watch its own type; anything else would be a bug, but not a reason to panic.
            Ok(resource) => cast(resource).ok_or_else(|| {
                format!(
                    "{} {name}: the client delivered a {}",
                    resource_type.name(),
                    resource.resource_type().name()
                )
                .into()
            }),
            Err(why) => Err(Arc::clone(why)),
        })
    }
}

impl Watched {
    /// Records that the resource is unusable.
    fn fail(&mut self, error: &ResourceError) {
        let unreachable = error.kind.is_about_server();
        // An unreachable server does not invalidate its earlier results.
        if unreachable && !self.unreachable && matches!(self.result, Some(Err(_))) {
            return;
        }
        self.unreachable = unreachable;
        self.result = Some(Err(text(error)));
    }
}

/// Whether a new version of a resource changes only the configurations of leaves.
fn concerns_leaves_only(old: &Resource, new: &Resource) -> bool {
    match (old, new) {
        (Resource::ClusterLoadAssignment(old), Resource::ClusterLoadAssignment(new)) => {
            decides(old) == decides(new)
        }
        // The kind has the names of all resources that a cluster requires.
        (Resource::Cluster(old), Resource::Cluster(new)) => {
            matches!(new.kind, ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. })
                && old.kind == new.kind
        }
        _ => false,
    }
}

fn text(error: &ResourceError) -> Arc<str> {
    error.to_string().into()
}
