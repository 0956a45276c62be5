//! The weighted_target policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::config::WeightedTargetConfig;
use super::picker::{Share, WeightedPicker};
use crate::api::{
    Child, ChildIndex, ChildNode, ConfigError, ConnectivityState, Cx, FailPicker, PickError, Picker, Policy,
    PolicyConfig, PolicyNode, SubchannelEvent, TreePath, Update, config_of,
};

const NAME: &str = "weighted_target_experimental";

/// The policy `weighted_target_experimental`.
#[derive(Default)]
pub struct WeightedTarget {
    nodes: BTreeMap<Arc<str>, TargetNode>,
    children_made: u32,
    published: Option<(ConnectivityState, Vec<Share>)>,
}

impl Policy for WeightedTarget {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config = match good_config(&update.config) {
            Ok(config) => config,
            Err(error) => {
                if self.published.is_none() {
                    self.fail(error.to_string(), cx);
                }
                return Err(error);
            }
        };
        tracing::debug!(target: "weighted_target_lb", targets = config.targets.len(), "update");
        // A target that left the configuration is dropped at once, but only after its successors hold the connections
        // that both use.
        let mut old = std::mem::take(&mut self.nodes);
        let mut errors = Vec::new();
        for (name, target) in &config.targets {
            let mut node = old.remove(name).unwrap_or_else(|| {
                self.children_made += 1;
                TargetNode::new(ChildIndex(self.children_made), &target.config)
            });
            node.weight = target.weight;
            let update = Update {
                config: Arc::clone(&target.config),
                endpoints: update.endpoints.group(name),
                resolution_note: update.resolution_note.clone(),
                shared: update.shared.clone(),
            };
            let (result, _) = node.call(cx, |child, cx| child.update(&update, cx));
            errors.extend(result.err().map(|error| format!("child {name}: {error}")));
            self.nodes.insert(Arc::clone(name), node);
        }
        if self.nodes.is_empty() {
            let why = "no children in weighted_target policy";
            // The cause first, since it is more useful to readers than its consequence.
            let note = update.resolution_note.as_deref();
            self.fail(note.map_or_else(|| why.to_owned(), |note| format!("{note} ({why})")), cx);
        } else {
            self.publish(cx);
        }
        drop(old);
        if errors.is_empty() { Ok(()) } else { Err(ConfigError { policy: NAME, why: errors.join("; ") }) }
    }

    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        if let Some((index, rest)) = path.next() {
            self.call_child(index, cx, |child, cx| child.on_subchannel(rest, event, cx));
        }
    }

    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if let Some((index, rest)) = path.next() {
            self.call_child(index, cx, |child, cx| child.on_timer(rest, tag, cx));
        }
    }

    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if let Some((index, rest)) = path.next() {
            self.call_child(index, cx, |child, cx| child.on_signal(rest, tag, cx));
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        let mut published = false;
        for node in self.nodes.values_mut() {
            published |= node.call(cx, |child, cx| child.exit_idle(cx)).1;
        }
        if published {
            self.publish(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyNode {
        let child = |(name, node): (&Arc<str>, &TargetNode)| ChildNode {
            weight: Some(node.weight),
            ..ChildNode::new(&**name, node.child.describe(now))
        };
        PolicyNode { children: self.nodes.iter().map(child).collect(), ..PolicyNode::default() }
    }
}

impl WeightedTarget {
    fn call_child(&mut self, index: ChildIndex, cx: &mut dyn Cx, f: impl FnOnce(&mut Child, &mut dyn Cx)) {
        let Some(node) = self.nodes.values_mut().find(|node| node.child.index() == index) else { return };
        let ((), published) = node.call(cx, f);
        if published {
            self.publish(cx);
        }
    }

    /// Publishes the best state of any child, unless the parent has the same output already.
    fn publish(&mut self, cx: &mut dyn Cx) {
        let state = self.aggregate();
        let shares: Vec<_> =
            self.nodes.values().filter(|node| node.takes_picks(state)).map(TargetNode::share).collect();
        if self.published.as_ref().is_none_or(|(old, old_shares)| *old != state || *old_shares != shares) {
            cx.publish(state, WeightedPicker::over(&shares));
            self.published = Some((state, shares));
        }
    }

    fn aggregate(&self) -> ConnectivityState {
        [ConnectivityState::Ready, ConnectivityState::Connecting, ConnectivityState::Idle]
            .into_iter()
            .find(|&state| self.nodes.values().any(|node| node.state == state))
            .unwrap_or(ConnectivityState::TransientFailure)
    }

    fn fail(&mut self, why: String, cx: &mut dyn Cx) {
        let picker = FailPicker::new(PickError::unavailable(why));
        self.published = Some((
            ConnectivityState::TransientFailure,
            vec![Share { weight: 1, picker: Arc::clone(&picker) as Arc<dyn Picker> }],
        ));
        cx.publish(ConnectivityState::TransientFailure, picker);
    }
}

/// A child with its weight and its state in the aggregation.
struct TargetNode {
    child: Child,
    weight: u32,
    state: ConnectivityState,
    picker: Arc<dyn Picker>,
}

impl TargetNode {
    fn new(index: ChildIndex, config: &Arc<dyn PolicyConfig>) -> Self {
        let child = Child::new(index, config);
        let output = child.output().clone();
        Self { child, weight: 0, state: output.state, picker: output.picker }
    }

    /// Calls the child. Returns true if it published.
    fn call<R>(&mut self, cx: &mut dyn Cx, f: impl FnOnce(&mut Child, &mut dyn Cx) -> R) -> (R, bool) {
        let result = f(&mut self.child, cx);
        let published = self.child.take_dirty();
        if published {
            // Targets connect without a pick where they can; otherwise the first RPC of each would wait.
            if self.child.output().state == ConnectivityState::Idle {
                self.child.exit_idle(cx);
                self.child.take_dirty();
            }
            self.on_state();
        }
        (result, published)
    }

    fn on_state(&mut self) {
        let output = self.child.output();
        // A failed child that retries counts as failed, with its error, until it is READY: otherwise many children
        // failing in turn would look as if one of them were about to connect, and RPCs would be queued for ever. A
        // child that is still IDLE after it was told to connect (ring_hash with new endpoints) does not retry: only a
        // pick makes it connect, and a failed child gets none while another is READY.
        let still_failing = self.state == ConnectivityState::TransientFailure
            && output.state == ConnectivityState::Connecting;
        if !still_failing {
            self.state = output.state;
            self.picker = Arc::clone(&output.picker);
        }
    }

    /// Whether its picker is part of the one published with this state.
    fn takes_picks(&self, published: ConnectivityState) -> bool {
        match published {
            // A28, A42: an IDLE child gets its share too. It connects only when picked, and would otherwise get no RPCs
            // once another child is READY. So do CONNECTING children: a ring that tries one endpoint starts another one
            // for the picks that map to it.
            ConnectivityState::Ready | ConnectivityState::Connecting => {
                self.state == published || self.state == ConnectivityState::Idle
            }
            // In TRANSIENT_FAILURE, RPCs fail with the children's errors.
            ConnectivityState::Idle | ConnectivityState::TransientFailure => self.state == published,
        }
    }

    fn share(&self) -> Share {
        Share { weight: self.weight, picker: Arc::clone(&self.picker) }
    }
}

fn good_config(config: &Arc<dyn PolicyConfig>) -> Result<&WeightedTargetConfig, ConfigError> {
    let config: &WeightedTargetConfig = config_of(NAME, config)?;
    config.problems().map_or(Ok(config), |why| Err(ConfigError { policy: NAME, why }))
}
