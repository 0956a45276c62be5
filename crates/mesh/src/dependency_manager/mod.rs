//! [`DependencyManager`]: watches the resources of a channel and combines them into one [`XdsConfig`] (gRFC A74, A37,
//! A99).
//!
//! Inputs are resource events, DNS results and claims on clusters; outputs are [`DependencyEffect`]s and, when the
//! configuration changed, one update. Events are only recorded; the work is done once, when the caller next polls for
//! effects or resolves, so that a batch of events costs one walk. The most frequent events, new endpoints and settings of
//! known clusters, cost no walk: only these clusters are visited.
//!
//! The rules of publishing:
//! * The first configuration, and each switch of routes, waits until every cluster of the routes is answered (with data
//!   or an error). An aggregate is answered as soon as RPCs can be decided ([`Flattened::can_start`]).
//! * While a switch waits, the old routes and leaf lists stay published, and their clusters still get new endpoints.
//! * A published aggregate adopts a new leaf list when it only appends leaves that are still loading, or when all of
//!   its leaves are answered; until then it keeps the old one (A99-26).
//! * An unreachable control plane says nothing about a resource: a resource that cannot be requested counts as loading
//!   while something old serves, and as an error otherwise.
//! * A cluster that is only claimed delays nothing.
//!
//! [`Flattened::can_start`]: crate::graph::Flattened::can_start

mod cluster_state;
mod dns;
mod lookahead;
mod notes;
mod publish;
mod resources;
mod routing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use proxyless_sans_io::SmallMap;
use proxyless_xds::client::{WatchEvent, WatchId};
use proxyless_xds::resource::ResourceType;

pub use self::dns::DnsName;
use self::dns::DnsNames;
pub use self::lookahead::next_resources;
pub(crate) use self::notes::join as join_notes;
use self::publish::Current;
use self::resources::{Key, News, Resources, Wanted};
use crate::xds_config::XdsConfig;

/// An action for the channel core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DependencyEffect {
    /// Watch a resource.
    Watch {
        /// The id of the watch, unique in this manager.
        id: WatchId,
        /// The resource's type.
        resource_type: ResourceType,
        /// The resource's name.
        name: Arc<str>,
    },
    /// End a watch.
    Unwatch {
        /// The watch.
        id: WatchId,
    },
    /// Resolve a name, and report each result.
    DnsStart(DnsName),
    /// Stop resolving a name.
    DnsStop(DnsName),
    /// Resolve every started name again.
    DnsResolve,
}

/// Combines the resources of one channel. See the [module](self).
#[derive(Debug)]
pub struct DependencyManager {
    listener_name: Arc<str>,
    authority: Arc<str>,
    resources: Resources,
    dns: DnsNames,
    /// Clusters that are kept independently of the routes, and their numbers of claims.
    claims: SmallMap<Arc<str>, usize>,
    /// The configuration in use.
    current: Current,
    /// The next configuration, not taken yet.
    update: Option<Result<Arc<XdsConfig>, Arc<str>>>,
    effects: VecDeque<DependencyEffect>,
    stage: Stage,
    /// The resources whose new versions concern leaves only, since the last walk.
    renewed: BTreeSet<Key>,
    /// The current clusters by EDS resource; built on demand, and dropped with each walk.
    by_eds: Option<BTreeMap<Arc<str>, Vec<Arc<str>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is watched yet (A27-35).
    NotStarted,
    /// There were events since the last walk.
    Dirty,
    /// Effects and update reflect all inputs.
    Settled,
}

/// The number of effects for which an empty queue has room.
const FEW_EFFECTS: usize = 32;

impl DependencyManager {
    /// Creates a manager for the Listener `listener_name` (A27-36) and the virtual host of `authority`.
    #[must_use]
    pub fn new(listener_name: Arc<str>, authority: Arc<str>) -> Self {
        Self {
            listener_name,
            authority,
            resources: Resources::default(),
            dns: DnsNames::default(),
            claims: SmallMap::new(),
            current: Current::Nothing,
            update: None,
            effects: VecDeque::new(),
            stage: Stage::NotStarted,
            renewed: BTreeSet::new(),
            by_eds: None,
        }
    }

    /// Starts to watch. No effect if it is started already.
    pub fn start(&mut self) {
        if self.stage == Stage::NotStarted {
            self.stage = Stage::Dirty;
        }
    }

    /// Ends every watch and name and drops their results, until [`Self::start`]. Claims stay.
    pub fn stop(&mut self) {
        self.stage = Stage::NotStarted;
        self.current = Current::Nothing;
        self.update = None;
        self.renewed.clear();
        self.by_eds = None;
        self.watch(&Wanted::default());
    }

    /// Handles an event of a watched resource. Late events of ended watches are ignored.
    pub fn on_resource(&mut self, watch: WatchId, event: WatchEvent) {
        match self.resources.on_event(watch, event) {
            News::None => {}
            News::Leaves(key) => drop(self.renewed.insert(key)),
            News::Some => self.touch(),
        }
    }

    /// Handles the addresses of a name, or the error. Results for stopped names are ignored.
    pub fn on_dns(&mut self, name: &DnsName, result: Result<Vec<SocketAddr>, String>) {
        if self.dns.on_result(name, result) {
            self.touch();
        }
    }

    /// Keeps a cluster in the configuration independently of the routes, until it is released as often.
    pub fn claim_cluster(&mut self, name: &Arc<str>) {
        let count = self.claims.get_or_insert_with(Arc::clone(name), || 0);
        *count += 1;
        if *count == 1 {
            self.touch();
        }
    }

    /// Ends one claim.
    pub fn release_cluster(&mut self, name: &Arc<str>) {
        let Some(count) = self.claims.get_mut(name) else { return };
        *count -= 1;
        if *count == 0 {
            self.claims.remove(name);
            self.touch();
        }
    }

    /// A37-34, A74: a policy requests re-resolution; every DNS name is resolved again, and nothing else (A37-28).
    pub fn request_reresolution(&mut self) {
        self.settle();
        if !self.dns.is_empty() && !self.effects.contains(&DependencyEffect::DnsResolve) {
            self.effects.push_back(DependencyEffect::DnsResolve);
        }
    }

    /// Resolves the resources; returns the configuration if it has changed, or `Err` if the old one must be dropped and
    /// RPCs fail.
    pub fn resolve(&mut self) -> Option<Result<Arc<XdsConfig>, Arc<str>>> {
        self.settle();
        self.update.take()
    }

    /// Returns the next effect.
    pub fn poll_effect(&mut self) -> Option<DependencyEffect> {
        self.settle();
        let effect = self.effects.pop_front();
        if effect.is_none() {
            // The watches of very many clusters leave a long queue behind.
            self.effects.shrink_to(FEW_EFFECTS);
        }
        effect
    }

    fn touch(&mut self) {
        if self.stage == Stage::Settled {
            self.stage = Stage::Dirty;
        }
    }
}
