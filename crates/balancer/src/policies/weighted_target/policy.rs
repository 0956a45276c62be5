//! The weighted_target policy.

use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::{Meter, PlaceId};

use super::config::WeightedTargetConfig;
use super::picker::{Share, WeightedPicker};
use crate::api::{
    Child, ChildEntry, ChildOutput, ChildPolicyView, Children, ConfigError, ConnectivityState, Cx,
    FailPicker, PickError, Picker, Policy, PolicyConfig, PolicyView, TreeEvent, TreePath, Update, config_of,
};
use crate::targets;

const NAME: &str = "weighted_target_experimental";

/// The policy `weighted_target_experimental`.
#[derive(Default)]
pub struct WeightedTarget {
    targets: Children<Arc<str>, Counted>,
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
        tracing::debug!(target: targets::WEIGHTED_TARGET_LB, targets = config.targets.len(), "update");
        // A target that left the configuration is dropped at once, but only after its successors hold the connections
        // that both use.
        let removed = self.targets.retain(|name| config.targets.contains_key(name));
        let mut errors = Vec::new();
        for (name, target) in config.targets.iter() {
            let entry = self.targets.get_or_insert_with(Arc::clone(name), &target.config, Counted::default);
            entry.data.weight = target.weight;
            let update = Update {
                config: Arc::clone(&target.config),
                endpoints: update.endpoints.group(name),
                // A78: policies below know the locality that they serve.
                place: place(update, name, cx.meter()),
                ..update.clone()
            };
            let (result, _) = call(entry, cx, |child, cx| child.update(&update, cx));
            errors.extend(result.err().map(|error| format!("child {name}: {error}")));
        }
        if self.targets.is_empty() {
            let why = "no children in weighted_target policy";
            // The cause first, since it is more useful to readers than its consequence.
            let note = update.resolution_note.as_deref();
            self.fail(note.map_or_else(|| why.to_owned(), |note| format!("{note} ({why})")), cx);
        } else {
            self.publish(cx);
        }
        drop(removed);
        ConfigError::unless_empty(NAME, &errors)
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        let Some((index, rest)) = path.next() else { return };
        let Some(entry) = self.targets.at(index) else { return };
        let ((), published) = call(entry, cx, |child, cx| child.on_event(rest, event, cx));
        if published {
            self.publish(cx);
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        let mut published = false;
        for (_, entry) in self.targets.iter_mut() {
            published |= call(entry, cx, |child, cx| child.exit_idle(cx)).1;
        }
        if published {
            self.publish(cx);
        }
    }

    fn describe(&self, now: Time) -> PolicyView {
        let child = |(name, entry): (&Arc<str>, &ChildEntry<Counted>)| ChildPolicyView {
            weight: Some(entry.data.weight),
            ..ChildPolicyView::new(&**name, entry.child.describe(now))
        };
        PolicyView { children: self.targets.iter().map(child).collect(), ..PolicyView::default() }
    }
}

impl WeightedTarget {
    /// Publishes the best state of any child, unless the parent has the same output already.
    fn publish(&mut self, cx: &mut dyn Cx) {
        let state = self.aggregate();
        let counted = self.targets.values().map(|entry| &entry.data);
        let shares: Vec<_> =
            counted.filter(|counted| counted.takes_picks(state)).map(Counted::share).collect();
        if self.published.as_ref().is_none_or(|(old, old_shares)| *old != state || *old_shares != shares) {
            cx.publish(state, WeightedPicker::over(&shares));
            self.published = Some((state, shares));
        }
    }

    fn aggregate(&self) -> ConnectivityState {
        [ConnectivityState::Ready, ConnectivityState::Connecting, ConnectivityState::Idle]
            .into_iter()
            .find(|&state| self.targets.values().any(|entry| entry.data.output.state == state))
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

/// Calls a child. Returns true if it published.
fn call<R>(
    entry: &mut ChildEntry<Counted>,
    cx: &mut dyn Cx,
    f: impl FnOnce(&mut Child, &mut dyn Cx) -> R,
) -> (R, bool) {
    let ChildEntry { child, data } = entry;
    let result = f(child, cx);
    let published = child.take_dirty();
    if published {
        // Targets connect without a pick where they can; otherwise the first RPC of each would wait.
        if child.output().state == ConnectivityState::Idle {
            child.exit_idle(cx);
            child.take_dirty();
        }
        data.on_output(child.output());
    }
    (result, published)
}

/// The weight of a child, and its output as it counts in the aggregation.
#[derive(Default)]
struct Counted {
    weight: u32,
    output: ChildOutput,
}

impl Counted {
    fn on_output(&mut self, output: &ChildOutput) {
        // A failed child that retries counts as failed, with its error, until it is READY: otherwise many children
        // failing in turn would look as if one of them were about to connect, and RPCs would be queued for ever. A
        // child that is still IDLE after it was told to connect (ring_hash with new endpoints) does not retry: only a
        // pick makes it connect, and a failed child gets none while another is READY.
        let still_failing = self.output.state == ConnectivityState::TransientFailure
            && output.state == ConnectivityState::Connecting;
        if !still_failing {
            self.output = output.clone();
        }
    }

    /// Whether its picker is part of the one published with this state.
    fn takes_picks(&self, published: ConnectivityState) -> bool {
        match published {
            // A28, A42: an IDLE child gets its share too. It connects only when picked, and would otherwise get no RPCs
            // once another child is READY. So do CONNECTING children: a ring that tries one endpoint starts another one
            // for the picks that map to it.
            ConnectivityState::Ready | ConnectivityState::Connecting => {
                self.output.state == published || self.output.state == ConnectivityState::Idle
            }
            // In TRANSIENT_FAILURE, RPCs fail with the children's errors.
            ConnectivityState::Idle | ConnectivityState::TransientFailure => self.output.state == published,
        }
    }

    fn share(&self) -> Share {
        Share { weight: self.weight, picker: Arc::clone(&self.output.picker) }
    }
}

fn place(update: &Update, name: &str, meter: &Meter) -> PlaceId {
    if !meter.is_enabled() {
        return PlaceId::default();
    }
    meter.with_locality(update.place, update.endpoints.locality(name))
}

fn good_config(config: &Arc<dyn PolicyConfig>) -> Result<&WeightedTargetConfig, ConfigError> {
    let config: &WeightedTargetConfig = config_of(NAME, config)?;
    config.problems().map_or(Ok(config), |reason| Err(ConfigError { policy: NAME, reason }))
}
