//! The xds_cluster_manager policy (gRFC A31): keeps one child per cluster and publishes their combined
//! state and a picker over all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::{
    ChildEntry, ChildIndex, ChildPolicyView, Children, ClusterId, ConfigError, ConnectivityState, Cx,
    Deferred, Endpoints, Policy, PolicyConfig, PolicyView, TreeEvent, TreePath, Update, config_of,
};
use proxyless_sans_io::{Chunks, SmallMap, Time};

use super::config::{ClusterManagerConfig, ManagedCluster, NAME};
use super::picker::{ClusterPicker, PickersById};

use crate::targets;

/// The policy. Children are keyed by id and name, so that a reused id does not inherit another cluster's state.
#[derive(Default)]
pub(super) struct ClusterManager {
    children: Children<Key, Published>,
    /// The last configuration, if no child rejected it.
    accepted: Option<Arc<dyn PolicyConfig>>,
    /// The published output of the children; `None` before the first.
    output: Option<Output>,
    /// Children that have published since then.
    dirty: Vec<ChildIndex>,
    /// Requested when a child has published: the policy publishes once, at the end of the input.
    publication: Deferred,
}

type Key = (ClusterId, Arc<str>);

/// A child's part of the output.
struct Published {
    id: ClusterId,
    state: ConnectivityState,
}

/// The output of all children, combined.
#[derive(Default)]
struct Output {
    pickers: PickersById,
    /// The number of children in each state.
    states: SmallMap<ConnectivityState, usize>,
}

impl Output {
    fn count(&mut self, state: ConnectivityState) {
        *self.states.get_or_insert_with(state, || 0) += 1;
    }

    fn uncount(&mut self, state: ConnectivityState) {
        if let Some(number) = self.states.get_mut(&state) {
            *number = number.saturating_sub(1);
        }
    }

    /// READY before CONNECTING before IDLE; TRANSIENT_FAILURE only if all children are in it, or there are none.
    fn state(&self) -> ConnectivityState {
        let any = |state| self.states.get(&state).is_some_and(|&number| number > 0);
        [ConnectivityState::Ready, ConnectivityState::Connecting, ConnectivityState::Idle]
            .into_iter()
            .find(|&state| any(state))
            .unwrap_or(ConnectivityState::TransientFailure)
    }
}

impl ClusterManager {
    /// Publishes the output of a new set of children.
    fn publish_all(&mut self, cx: &mut dyn Cx) {
        self.dirty.clear();
        let mut output = Output::default();
        for (_, ChildEntry { child, data }) in self.children.iter_mut() {
            child.take_dirty();
            data.state = child.output().state;
            output.count(data.state);
        }
        let picker_of = |ChildEntry { child, data }: &ChildEntry<Published>| {
            (data.id, Arc::clone(&child.output().picker))
        };
        output.pickers = self.children.values().map(picker_of).collect();
        self.show(output, cx);
    }

    /// Publishes what children have published.
    fn publish_dirty(&mut self, cx: &mut dyn Cx) {
        let Some(mut output) = self.output.take() else { return self.publish_all(cx) };
        for index in std::mem::take(&mut self.dirty) {
            let Some(ChildEntry { child, data }) = self.children.at(index) else { continue };
            if child.take_dirty() {
                output.pickers.set(data.id, Arc::clone(&child.output().picker));
                output.uncount(data.state);
                data.state = child.output().state;
                output.count(data.state);
            }
        }
        self.show(output, cx);
    }

    fn show(&mut self, output: Output, cx: &mut dyn Cx) {
        cx.publish(output.state(), ClusterPicker::new(output.pickers.clone()));
        self.output = Some(output);
    }

    fn has_children_of(&self, clusters: &Chunks<ManagedCluster>) -> bool {
        let names: BTreeSet<_> = clusters.iter().map(|cluster| (cluster.id, &*cluster.name)).collect();
        names.len() == self.children.len()
            && self.children.iter().all(|((id, name), _)| names.contains(&(*id, &**name)))
    }
}

/// The clusters that differ in memory, by place. `None` if the places are those of other clusters.
fn changed_places(new: &Chunks<ManagedCluster>, old: &Chunks<ManagedCluster>) -> Option<Vec<usize>> {
    if new.len() != old.len() {
        return None;
    }
    let mut changed = Vec::new();
    for at in new.differences(old) {
        let (new, old) = (new.get(at)?, old.get(at)?);
        if !new.has_same_key(old) {
            return None;
        }
        if !new.ptr_eq(old) {
            changed.push(at);
        }
    }
    Some(changed)
}

impl Policy for ClusterManager {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &ClusterManagerConfig = config_of(NAME, &update.config)?;
        tracing::trace!(target: targets::XDS_CLUSTER_MANAGER_LB, clusters = config.clusters.len(), "update");
        let accepted = self.accepted.take();
        let accepted = accepted.as_ref().and_then(|accepted| config_of(NAME, accepted).ok());
        // Most updates concern one of a thousand clusters.
        let changed = accepted
            .and_then(|accepted: &ClusterManagerConfig| changed_places(&config.clusters, &accepted.clusters));
        let same_clusters = changed.is_some() || self.has_children_of(&config.clusters);
        let places = changed.unwrap_or_else(|| (0..config.clusters.len()).collect());
        let mut errors = Vec::new();
        for cluster in places.into_iter().filter_map(|place| config.clusters.get(place)) {
            let key = (cluster.id, Arc::clone(&cluster.name));
            // The initial output of a child.
            let data = || Published { id: cluster.id, state: ConnectivityState::Connecting };
            let child = &mut self.children.get_or_insert_with(key, &cluster.config, data).child;
            let update = Update {
                config: Arc::clone(&cluster.config),
                endpoints: Endpoints::none(),
                resolution_note: update.resolution_note.clone(),
                place: update.place,
                shared: cluster.slice.clone().map(|slice| slice as Arc<_>),
            };
            if let Err(error) = child.update(&update, cx) {
                errors.push(format!("cluster {}: {error}", cluster.name));
            }
            if child.output().dirty {
                self.dirty.push(child.index());
            }
        }
        // A115: removed clusters are dropped at once; the pool keeps connections that others use. They are dropped only
        // now, so that connections that moved to another cluster were taken over before.
        if !same_clusters {
            let kept: BTreeSet<_> =
                config.clusters.iter().map(|cluster| (cluster.id, &*cluster.name)).collect();
            self.children.retain(|(id, name)| kept.contains(&(*id, &**name)));
        }
        if errors.is_empty() {
            self.accepted = Some(Arc::clone(&update.config));
        }
        // A31: the new children and the picker that knows them are published in one step.
        if !same_clusters || self.output.is_none() {
            self.publish_all(cx);
        } else if !self.dirty.is_empty() {
            self.publish_dirty(cx);
        }
        ConfigError::unless_empty(NAME, &errors)
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let Some((index, rest)) = path.next() else {
            if self.publication.take() && !self.dirty.is_empty() {
                self.publish_dirty(cx);
            }
            return;
        };
        if let Some(ChildEntry { child, .. }) = self.children.at(index) {
            let was_dirty = child.output().dirty;
            child.on_event(rest, event, cx);
            if child.output().dirty {
                if !was_dirty {
                    self.dirty.push(index);
                }
                self.publication.request(0, cx);
            }
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        for (_, ChildEntry { child, .. }) in self.children.iter_mut() {
            child.exit_idle(cx);
            if child.output().dirty {
                self.dirty.push(child.index());
            }
        }
        if !self.dirty.is_empty() {
            self.publish_dirty(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyView {
        let child = |((_, name), entry): (&Key, &ChildEntry<_>)| {
            ChildPolicyView::new(&**name, entry.child.describe(now))
        };
        PolicyView::with_children(self.children.iter().map(child).collect())
    }
}
