//! The xds_cluster_manager policy (gRFC A31): keeps one child per cluster and publishes their combined
//! state and a picker over all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::{
    ChildEntry, ChildPolicyView, Children, ClusterId, ConfigError, ConnectivityState, Cx, Deferred,
    Endpoints, Policy, PolicyConfig, PolicyView, TreeEvent, TreePath, Update, config_of,
};
use proxyless_sans_io::Time;

use super::config::{ClusterManagerConfig, ManagedCluster, NAME};
use super::picker::ClusterPicker;

use crate::targets;

/// The policy. Children are keyed by id and name, so that a reused id does not inherit another cluster's state.
#[derive(Default)]
pub(super) struct ClusterManager {
    children: Children<(ClusterId, Arc<str>)>,
    /// The last configuration, if no child rejected it.
    accepted: Option<Arc<dyn PolicyConfig>>,
    published: bool,
    /// Requested when a child has published: the policy publishes once, at the end of the input.
    publication: Deferred,
}

impl ClusterManager {
    fn publish(&mut self, cx: &mut dyn Cx) {
        self.published = true;
        for (_, entry) in self.children.iter_mut() {
            entry.child.take_dirty();
        }
        let picker_of = |((id, _), entry): (&(ClusterId, _), &ChildEntry<()>)| {
            (*id, Arc::clone(&entry.child.output().picker))
        };
        let pickers = self.children.iter().map(picker_of);
        cx.publish(self.state(), ClusterPicker::new(pickers));
    }

    fn has_children_of(&self, clusters: &[ManagedCluster]) -> bool {
        let names: BTreeSet<_> = clusters.iter().map(|cluster| (cluster.id, &*cluster.name)).collect();
        names.len() == self.children.len()
            && self.children.iter().all(|((id, name), _)| names.contains(&(*id, &**name)))
    }

    fn any_dirty(&self) -> bool {
        self.children.values().any(|entry| entry.child.output().dirty)
    }

    /// READY before CONNECTING before IDLE; TRANSIENT_FAILURE only if all children are in it, or there are none.
    fn state(&self) -> ConnectivityState {
        let any = |state| self.children.values().any(|entry| entry.child.output().state == state);
        [ConnectivityState::Ready, ConnectivityState::Connecting, ConnectivityState::Idle]
            .into_iter()
            .find(|&state| any(state))
            .unwrap_or(ConnectivityState::TransientFailure)
    }
}

impl Policy for ClusterManager {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &ClusterManagerConfig = config_of(NAME, &update.config)?;
        tracing::trace!(target: targets::XDS_CLUSTER_MANAGER_LB, clusters = config.clusters.len(), "update");
        let accepted = self.accepted.take();
        let accepted = accepted.as_ref().and_then(|accepted| config_of(NAME, accepted).ok());
        let accepted = accepted.map_or(&[][..], |accepted: &ClusterManagerConfig| &accepted.clusters);
        let unmoved = config.clusters.len() == accepted.len()
            && config.clusters.iter().zip(accepted).all(|(new, old)| new.has_same_key(old));
        let same_clusters = unmoved || self.has_children_of(&config.clusters);
        let mut errors = Vec::new();
        for (place, cluster) in config.clusters.iter().enumerate() {
            // Most updates concern one of a thousand clusters.
            if unmoved && accepted.get(place).is_some_and(|accepted| cluster.ptr_eq(accepted)) {
                continue;
            }
            let key = (cluster.id, Arc::clone(&cluster.name));
            let child = &mut self.children.get_or_insert_with(key, &cluster.config, || ()).child;
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
        if !same_clusters || !self.published || self.any_dirty() {
            self.publish(cx);
        }
        ConfigError::unless_empty(NAME, &errors)
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let Some((index, rest)) = path.next() else {
            if self.publication.take() && self.any_dirty() {
                self.publish(cx);
            }
            return;
        };
        if let Some(ChildEntry { child, .. }) = self.children.at(index) {
            child.on_event(rest, event, cx);
            if child.output().dirty {
                self.publication.request(0, cx);
            }
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        self.children.iter_mut().for_each(|(_, entry)| entry.child.exit_idle(cx));
        if self.any_dirty() {
            self.publish(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyView {
        let child = |((_, name), entry): (&(ClusterId, Arc<str>), &ChildEntry<()>)| {
            ChildPolicyView::new(&**name, entry.child.describe(now))
        };
        PolicyView::with_children(self.children.iter().map(child).collect())
    }
}
