use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_balancer::api::{
    Child, ChildNode, Children, ConfigError, ConnectivityState, Cx, Endpoints, Policy, PolicyNode, Route,
    SubchannelEvent, Update, config_of,
};
use proxyless_sans_io::Time;

use super::config::{ClusterManagerConfig, NAME};
use super::picker::ClusterPicker;

/// The policy. Children are keyed by id and name, so that a reused id does not inherit another cluster's state.
#[derive(Default)]
pub(super) struct ClusterManager {
    children: Children<(u32, Arc<str>)>,
    published: bool,
}

impl ClusterManager {
    fn descend(
        &mut self,
        route: Route<'_>,
        cx: &mut dyn Cx,
        f: impl FnOnce(&mut Child, Route<'_>, &mut dyn Cx),
    ) {
        let Some((index, rest)) = route.next() else { return };
        if let Some(child) = self.children.at(index) {
            f(child, rest, cx);
            if child.take_dirty() {
                self.publish(cx);
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

    fn any_dirty(&self) -> bool {
        self.children.iter().any(|(_, child)| child.output().dirty)
    }

    /// READY before CONNECTING before IDLE; TRANSIENT_FAILURE only if all children are in it, or there is none.
    fn state(&self) -> ConnectivityState {
        let any = |state| self.children.iter().any(|(_, child)| child.output().state == state);
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
        let kept: BTreeSet<_> = config.clusters.iter().map(|cluster| (cluster.id, &*cluster.name)).collect();
        let same_clusters = kept.len() == self.children.len()
            && self.children.iter().all(|((id, name), _)| kept.contains(&(*id, &**name)));
        let mut errors = Vec::new();
        for cluster in &config.clusters {
            let child = self.children.get_or_insert((cluster.id, Arc::clone(&cluster.name)), &cluster.config);
            let update = Update {
                config: Arc::clone(&cluster.config),
                endpoints: Endpoints::none(),
                ..update.clone()
            };
            if let Err(error) = child.update(&update, cx) {
                errors.push(format!("cluster {}: {error}", cluster.name));
            }
        }
        // A115: what left the configuration goes at once; the pool keeps connections that others still use. It goes
        // only now, so that connections which moved to another cluster were taken over before.
        self.children.retain(|(id, name)| kept.contains(&(*id, &**name)));
        // A31: the new children and the picker that knows them come in one step.
        if !same_clusters || !self.published || self.any_dirty() {
            self.publish(cx);
        }
        if errors.is_empty() { Ok(()) } else { Err(ConfigError { policy: NAME, why: errors.join("; ") }) }
    }

    fn on_subchannel(&mut self, route: Route<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        self.descend(route, cx, |child, route, cx| child.on_subchannel(route, event, cx));
    }

    fn on_timer(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx) {
        self.descend(route, cx, |child, route, cx| child.on_timer(route, token, cx));
    }

    fn on_signal(&mut self, route: Route<'_>, token: u32, cx: &mut dyn Cx) {
        self.descend(route, cx, |child, route, cx| child.on_signal(route, token, cx));
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
