//! The shared state of a control plane: the current snapshot, the clients, the loads and a feed of events.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use proxyless_testkit::Resource;
use tokio::sync::{broadcast, watch};

use super::clients::ClientView;
use super::loads::LoadView;
use super::snapshot::Snapshot;
use super::sotw::Current;
use super::streams::Protocol;
use super::subscription::News;

/// The number of events that a slow reader may be behind.
const FEED: usize = 1024;
/// The maximum number of clusters whose load is kept: clients choose the names.
const MAX_LOADS: usize = 10_000;

/// A control plane: set its resources with [`Plane::apply`], serve it with [`Serving`](super::Serving). Clones are the
/// same plane.
#[derive(Clone, Debug)]
pub struct Plane {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    current: watch::Sender<Arc<Snapshot>>,
    registry: Mutex<Registry>,
    events: broadcast::Sender<Event>,
    linger: Duration,
    load_interval: Duration,
}

#[derive(Debug, Default)]
struct Registry {
    streams_opened: u64,
    clients: BTreeMap<u64, ClientView>,
    loads: BTreeMap<String, LoadView>,
    /// The number of calls of [`Plane::apply`], so that a later one ends the delayed removals of an earlier one.
    applied: u64,
}

/// Something that happened on a stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The first request of a client, which has its node.
    Connected(ClientView),
    /// A stream ended.
    Disconnected(ClientView),
    /// A client accepted a response.
    Acked {
        /// The client.
        node: String,
        /// The type of the response.
        type_url: String,
        /// The version of the response.
        version: String,
    },
    /// A client rejected a response.
    Nacked {
        /// The client.
        node: String,
        /// The type of the response.
        type_url: String,
        /// The version of the response.
        version: String,
        /// The client's reason.
        error: String,
    },
    /// A client reported its load of a cluster.
    Load {
        /// The client.
        node: String,
        /// The cluster.
        cluster: String,
        /// The report alone.
        report: LoadView,
    },
}

/// The difference between two states of a plane, by type URL in the order of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub Vec<TypeChanges>);

/// The changes of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeChanges {
    /// The type URL.
    pub type_url: String,
    /// The new version.
    pub version: u64,
    /// Names that are new.
    pub added: Vec<String>,
    /// Names with a new content.
    pub changed: Vec<String>,
    /// Names that are gone.
    pub removed: Vec<String>,
}

impl Default for Plane {
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(10))
    }
}

impl Plane {
    /// An empty plane. Removed resources stay for the time `linger`, so that clients leave them before they are gone;
    /// load is requested every `load_interval`.
    #[must_use]
    pub fn new(linger: Duration, load_interval: Duration) -> Self {
        let shared = Shared {
            current: watch::Sender::new(Arc::default()),
            registry: Mutex::default(),
            events: broadcast::Sender::new(FEED),
            linger,
            load_interval,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Serves exactly these resources from now on. Returns the difference to those before.
    ///
    /// Additions and changes are sent at once, clusters and endpoints before listeners and routes; removals follow after
    /// the plane's delay. Must be called within a tokio runtime.
    pub fn apply<'a>(&self, resources: impl IntoIterator<Item = &'a Resource>) -> Changes {
        let applied = {
            let mut registry = self.registry();
            registry.applied += 1;
            registry.applied
        };
        let before = Arc::clone(&self.shared.current.borrow());
        let goal = before.next(resources);
        let changes = Changes::between(&before, &goal);
        if changes.0.is_empty() {
            return changes;
        }
        let with_removed = goal.and_the_removed_of(&before);
        let lingers = with_removed.types().any(|(type_url, kind)| {
            goal.of_type(type_url).is_none_or(|goal| goal.resources.len() != kind.resources.len())
        });
        let has_streams = !self.registry().clients.is_empty();
        if !lingers || !has_streams || self.shared.linger.is_zero() {
            self.shared.current.send_replace(Arc::new(goal));
            return changes;
        }
        self.shared.current.send_replace(Arc::new(with_removed.clone()));
        let plane = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(plane.shared.linger).await;
            let registry = plane.registry();
            if registry.applied == applied {
                plane.shared.current.send_replace(Arc::new(goal.after(&with_removed)));
            }
        });
        changes
    }

    /// The connected clients, by the number of their stream.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientView> {
        self.registry().clients.values().cloned().collect()
    }

    /// The load that clients have reported, by cluster.
    #[must_use]
    pub fn loads(&self) -> BTreeMap<String, LoadView> {
        self.registry().loads.clone()
    }

    /// A feed of events from now on. A reader that is far behind misses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    pub(super) fn current(&self) -> Current {
        self.shared.current.subscribe()
    }

    pub(super) fn load_interval(&self) -> Duration {
        self.shared.load_interval
    }

    pub(super) fn open<P: Protocol>(&self, peer: Option<SocketAddr>) -> u64 {
        let mut registry = self.registry();
        registry.streams_opened += 1;
        let number = registry.streams_opened;
        registry.clients.insert(number, ClientView::new::<P>(number, peer));
        number
    }

    pub(super) fn close(&self, stream: u64) {
        let client = self.registry().clients.remove(&stream);
        if let Some(client) = client {
            self.tell(Event::Disconnected(client));
        }
    }

    /// Changes the view of a client.
    pub(super) fn update(&self, stream: u64, update: impl FnOnce(&mut ClientView)) {
        let mut registry = self.registry();
        if let Some(client) = registry.clients.get_mut(&stream) {
            let was_known = client.node.is_some();
            update(client);
            if !was_known && client.node.is_some() {
                self.tell(Event::Connected(client.clone()));
            }
        }
    }

    pub(super) fn answered(&self, node: &str, type_url: &str, news: News) {
        let (node, type_url) = (node.to_owned(), type_url.to_owned());
        self.tell(match news {
            News::Ack { version } => Event::Acked { node, type_url, version },
            News::Nack { version, error } => Event::Nacked { node, type_url, version, error },
        });
    }

    pub(super) fn reported(&self, node: &str, stats: &ClusterStats) {
        let mut report = LoadView::default();
        report.add(stats);
        let mut registry = self.registry();
        if registry.loads.len() < MAX_LOADS || registry.loads.contains_key(&stats.cluster_name) {
            registry.loads.entry(stats.cluster_name.clone()).or_default().add(stats);
        }
        drop(registry);
        self.tell(Event::Load { node: node.to_owned(), cluster: stats.cluster_name.clone(), report });
    }

    fn tell(&self, event: Event) {
        // Without readers events are dropped.
        let _ = self.shared.events.send(event);
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // The maps are consistent even if a holder panicked.
        self.shared.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let mut all = Vec::new();
        for (type_url, kind) in after.types() {
            let empty = Default::default();
            let old = before.of_type(type_url).unwrap_or(&empty);
            let mut changes =
                TypeChanges { type_url: type_url.clone(), version: kind.version, ..Default::default() };
            for (name, entry) in &kind.resources {
                match old.resources.get(name) {
                    None => changes.added.push(name.clone()),
                    Some(old) if old.hash != entry.hash => changes.changed.push(name.clone()),
                    Some(_) => {}
                }
            }
            let gone = old.resources.keys().filter(|name| !kind.resources.contains_key(*name));
            changes.removed = gone.cloned().collect();
            if !(changes.added.is_empty() && changes.changed.is_empty() && changes.removed.is_empty()) {
                all.push(changes);
            }
        }
        all.sort_by_key(|changes| Snapshot::rank(&changes.type_url));
        Self(all)
    }
}
