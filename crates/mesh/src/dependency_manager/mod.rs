//! [`DependencyManager`]: watches what a channel needs and joins it to one [`XdsConfig`] (gRFC A74, A37, A99).
//!
//! Inputs are resource events, DNS results and subscriptions; outputs are [`DependencyEffect`]s and, when the channel's
//! configuration changed, one update. Events only note what they say; the work is done once, when the caller next asks
//! for effects or the update, so that a batch of events costs one walk. New endpoints of known clusters, which are most
//! of what happens, cost none: only the clusters that have them are looked at.
//!
//! The rules of publishing:
//! * The first configuration, and each switch of routes, waits until every cluster of the routes is answered (data or
//!   error). An aggregate is answered as soon as RPCs can be decided on ([`Flattened::can_start`]).
//! * While a switch waits, the old routes and leaf lists stay published, and new endpoints of their clusters still flow.
//! * An aggregate that was published before takes a new leaf list when it only appends what is still loading, or when all
//!   of it is answered; until then it keeps the old one (A99-26).
//! * A control plane that cannot be reached says nothing of a resource: what is asked for in vain is still loading as long
//!   as something old serves, and an error otherwise.
//! * A cluster that is only subscribed to holds nothing up.
//!
//! [`Flattened::can_start`]: crate::graph::Flattened::can_start

mod clusters;
mod dns;
mod notes;
mod publish;
mod resources;
mod routing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_xds::client::{WatchEvent, WatchId};
use proxyless_xds::resource::ResourceType;

pub use self::dns::DnsName;
use self::dns::DnsNames;
use self::publish::Published;
use self::resources::{News, Resources, Wanted};
use crate::xds_config::XdsConfig;

/// What the dependency manager wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyEffect {
    /// Watch a resource.
    Watch {
        /// The watch; unique within this manager.
        id: WatchId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// End a watch.
    Unwatch {
        /// Which one.
        id: WatchId,
    },
    /// Resolve a name, and report each result.
    DnsStart(DnsName),
    /// Stop resolving a name.
    DnsStop(DnsName),
    /// Resolve every started name again.
    DnsResolve,
}

/// Joins the resources of one channel. See the [module](self).
#[derive(Debug)]
pub struct DependencyManager {
    listener_name: Arc<str>,
    authority: Arc<str>,
    resources: Resources,
    dns: DnsNames,
    /// Clusters that are wanted whatever the routes say, and by how many.
    subscriptions: BTreeMap<Arc<str>, usize>,
    /// What the channel uses now.
    published: Published,
    /// What it is to use, not taken yet.
    update: Option<Result<Arc<XdsConfig>, Arc<str>>>,
    effects: VecDeque<DependencyEffect>,
    stage: Stage,
    /// EDS resources of which nothing but the endpoints has changed since the last walk.
    new_endpoints: BTreeSet<Arc<str>>,
    /// The published clusters by their EDS resource; made when it is needed, and forgotten with each walk.
    by_eds: Option<BTreeMap<Arc<str>, Vec<Arc<str>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is watched yet (A27-35).
    NotStarted,
    /// Something happened since the last walk.
    Dirty,
    /// Effects and update reflect every input.
    Settled,
}

impl DependencyManager {
    /// A manager for the Listener `listener_name` (A27-36) whose virtual host is the one for `authority`.
    #[must_use]
    pub fn new(listener_name: Arc<str>, authority: Arc<str>) -> Self {
        Self {
            listener_name,
            authority,
            resources: Resources::default(),
            dns: DnsNames::default(),
            subscriptions: BTreeMap::new(),
            published: Published::Nothing,
            update: None,
            effects: VecDeque::new(),
            stage: Stage::NotStarted,
            new_endpoints: BTreeSet::new(),
            by_eds: None,
        }
    }

    /// Begins to watch. Without effect while it does.
    pub fn start(&mut self) {
        if self.stage == Stage::NotStarted {
            self.stage = Stage::Dirty;
        }
    }

    /// Ends every watch and every name and forgets what they said, until [`Self::start`]. Subscriptions stay.
    pub fn stop(&mut self) {
        self.stage = Stage::NotStarted;
        self.published = Published::Nothing;
        self.update = None;
        self.new_endpoints.clear();
        self.by_eds = None;
        self.watch(&Wanted::default());
    }

    /// Takes in what happened to a watched resource. Late events of ended watches are ignored.
    pub fn on_resource(&mut self, watch: WatchId, event: WatchEvent) {
        match self.resources.on_event(watch, event) {
            News::None => {}
            News::Endpoints(name) => drop(self.new_endpoints.insert(name)),
            News::Some => self.touch(),
        }
    }

    /// Takes in the addresses of a name, or why there are none. Results for names that were stopped are ignored.
    pub fn on_dns(&mut self, name: &DnsName, result: Result<Vec<SocketAddr>, String>) {
        if self.dns.on_result(name, result) {
            self.touch();
        }
    }

    /// Keeps a cluster in the configuration whatever the routes say, until it is unsubscribed from as often.
    pub fn subscribe_cluster(&mut self, name: &Arc<str>) {
        let count = self.subscriptions.entry(Arc::clone(name)).or_default();
        *count += 1;
        if *count == 1 {
            self.touch();
        }
    }

    /// Takes one subscription back.
    pub fn unsubscribe_cluster(&mut self, name: &Arc<str>) {
        let Some(count) = self.subscriptions.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            self.subscriptions.remove(name);
            self.touch();
        }
    }

    /// A37-34, A74: a policy wants fresh addresses; every DNS name is resolved again, nothing else (A37-28).
    pub fn request_reresolution(&mut self) {
        self.settle();
        if !self.dns.is_empty() && !self.effects.contains(&DependencyEffect::DnsResolve) {
            self.effects.push_back(DependencyEffect::DnsResolve);
        }
    }

    /// The configuration, if it changed since it was last taken; `Err` if the old one must be dropped and RPCs fail.
    pub fn take_update(&mut self) -> Option<Result<Arc<XdsConfig>, Arc<str>>> {
        self.settle();
        self.update.take()
    }

    /// The next effect, if any.
    pub fn poll_effect(&mut self) -> Option<DependencyEffect> {
        self.settle();
        self.effects.pop_front()
    }

    fn touch(&mut self) {
        if self.stage == Stage::Settled {
            self.stage = Stage::Dirty;
        }
    }
}
