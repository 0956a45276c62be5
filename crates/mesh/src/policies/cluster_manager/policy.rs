use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::{
    Child, ChildNode, Children, ConfigError, ConnectivityState, Cx, Endpoints, Policy, PolicyConfig,
    PolicyNode, Signal, SubchannelEvent, TreePath, TreePathBuf, Update, config_of,
};
use proxyless_sans_io::Time;

use super::config::{ClusterManagerConfig, ManagedCluster, NAME};
use super::picker::ClusterPicker;

/// The policy. Children are keyed by id and name, so that a reused id does not inherit another cluster's state.
#[derive(Default)]
pub(super) struct ClusterManager {
    children: Children<(u32, Arc<str>)>,
    /// The last configuration, if no child rejected it.
    accepted: Option<Arc<dyn PolicyConfig>>,
    published: bool,
    /// Set while children have published and the policy has not: it publishes once, at the end of the input.
    stale: Option<Signal>,
}

impl ClusterManager {
    fn descend(
        &mut self,
        path: TreePath<'_>,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut Child, TreePath<'_>, &mut dyn Cx),
    ) {
        let Some((index, rest)) = path.next() else { return };
        if let Some(child) = self.children.at(index) {
            f(child, rest, cx);
            if child.output().dirty && self.stale.is_none() {
                let signal = cx.create_signal(TreePathBuf::default(), 0);
                cx.defer(&signal);
                self.stale = Some(signal);
            }
        }
    }

    fn publish(&mut self, cx: &mut dyn Cx) {
        self.published = true;
        self.children.iter_mut().for_each(|child| {
            child.take_dirty();
        });
        let pickers = self.children.iter().map(|((id, _), child)| (*id, Arc::clone(&child.output().picker)));
        cx.publish(self.state(), ClusterPicker::new(pickers));
    }

    fn is_over(&self, clusters: &[ManagedCluster]) -> bool {
        let names: BTreeSet<_> = clusters.iter().map(|cluster| (cluster.id, &*cluster.name)).collect();
        names.len() == self.children.len()
            && self.children.iter().all(|((id, name), _)| names.contains(&(*id, &**name)))
    }

    fn any_dirty(&self) -> bool {
        self.children.values().any(|child| child.output().dirty)
    }

    /// READY before CONNECTING before IDLE; TRANSIENT_FAILURE only if all children are in it, or there are none.
    fn state(&self) -> ConnectivityState {
        let any = |state| self.children.values().any(|child| child.output().state == state);
        [ConnectivityState::Ready, ConnectivityState::Connecting, ConnectivityState::Idle]
            .into_iter()
            .find(|&state| any(state))
            .unwrap_or(ConnectivityState::TransientFailure)
    }
}

impl Policy for ClusterManager {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &ClusterManagerConfig = config_of(NAME, &update.config)?;
        tracing::trace!(target: "xds_cluster_manager_lb", clusters = config.clusters.len(), "update");
        let accepted = self.accepted.take();
        let accepted = accepted.as_ref().and_then(|accepted| config_of(NAME, accepted).ok());
        let accepted = accepted.map_or(&[][..], |accepted: &ClusterManagerConfig| &accepted.clusters);
        let unmoved = config.clusters.len() == accepted.len()
            && config.clusters.iter().zip(accepted).all(|(new, old)| new.is_named_like(old));
        let same_clusters = unmoved || self.is_over(&config.clusters);
        let mut errors = Vec::new();
        for (place, cluster) in config.clusters.iter().enumerate() {
            // Most updates concern one of a thousand clusters.
            if unmoved && accepted.get(place).is_some_and(|accepted| cluster.is(accepted)) {
                continue;
            }
            let child = self.children.get_or_insert((cluster.id, Arc::clone(&cluster.name)), &cluster.config);
            let update = Update {
                config: Arc::clone(&cluster.config),
                endpoints: Endpoints::none(),
                resolution_note: update.resolution_note.clone(),
                shared: cluster.view.clone().map(|view| view as Arc<_>),
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
        if errors.is_empty() { Ok(()) } else { Err(ConfigError { policy: NAME, why: errors.join("; ") }) }
    }

    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_subchannel(path, event, cx));
    }

    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        self.descend(path, cx, |child, path, cx| child.on_timer(path, tag, cx));
    }

    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if path.next().is_some() {
            return self.descend(path, cx, |child, path, cx| child.on_signal(path, tag, cx));
        }
        if self.stale.take().is_some() && self.any_dirty() {
            self.publish(cx);
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        self.children.iter_mut().for_each(|child| child.exit_idle(cx));
        if self.any_dirty() {
            self.publish(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyNode {
        let child =
            |((_, name), child): (&(u32, Arc<str>), &Child)| ChildNode::new(&**name, child.describe(now));
        PolicyNode { children: self.children.iter().map(child).collect(), ..PolicyNode::default() }
    }
}
