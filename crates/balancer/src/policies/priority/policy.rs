//! The priority policy: manages the children and applies the choice.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::choice::{Lower, PriorityChoice, PriorityState, choose};
use super::config::{PriorityChild, PriorityConfig, RETENTION};
use super::serving::Serving;
use super::timers::{ChildTimers, Expired, TimerStarter};
use crate::api::{
    Child, ChildEntry, ChildIndex, ChildPolicyView, Children, ConfigError, ConnectivityState, Cx, Detail,
    FailPicker, PickError, Picker, Policy, PolicyConfig, PolicyView, Reresolution, TreeEvent, TreePath,
    Update, config_of,
};
use crate::targets;

const NAME: &str = "priority_experimental";

/// The policy `priority_experimental`.
#[derive(Default)]
pub struct Priority {
    /// The last accepted update.
    given: Option<Given>,
    /// The existing children; those below the chosen one may be deactivated.
    children: Children<Arc<str>, ChildTimers>,
    timers: TimerStarter,
    /// The chosen child.
    chosen: Option<Arc<str>>,
    /// The child whose output is published.
    serving: Option<Arc<str>>,
    /// The child that was READY and serving at the last update, until a READY one is chosen.
    carried_over: Option<Arc<str>>,
    published: Option<(ConnectivityState, Arc<dyn Picker>)>,
    /// For inspection: kept where `serving` is temporarily empty.
    shown: Serving,
}

/// An update whose configuration is a [`PriorityConfig`].
struct Given(Update);

impl Policy for Priority {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config = match good_config(&update.config) {
            Ok(config) => config,
            Err(error) => {
                if self.published.is_none() {
                    self.fail(&error.to_string(), cx);
                }
                return Err(error);
            }
        };
        let was_ready = matches!(self.published, Some((ConnectivityState::Ready, _)));
        self.carried_over = self.serving.take().filter(|_| was_ready);
        self.timers.failover_timeout = config.failover_timeout;
        // X-15, A115: children that left the configuration are dropped at once, but only after their successors hold
        // the connections that both use.
        let removed = self.children.retain(|name| config.priorities.contains(name));
        let given = self.given.insert(Given(update.clone()));
        let mut errors = Vec::new();
        // X-14, A56: every existing child is updated before a single choice.
        for (name, entry) in self.children.iter_mut() {
            let Some(child_config) = config.children.get(name) else { continue };
            entry.child.set_reresolution(reresolution(child_config));
            let child_update = given.update_of(name, &child_config.config);
            let (result, _) = call(entry, &mut self.timers, cx, |child, cx| child.update(&child_update, cx));
            errors.extend(result.err().map(|error| format!("child {name}: {error}")));
        }
        self.choose(&mut errors, cx);
        drop(removed);
        ConfigError::unless_empty(NAME, &errors)
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        match (path.next(), event) {
            (Some((index, rest)), _) => {
                self.call_child(index, cx, |child, cx| child.on_event(rest, event, cx));
            }
            (None, TreeEvent::Timer(tag)) => self.on_own_timer(tag, cx),
            (None, _) => {}
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        let chosen = self.chosen.as_ref().and_then(|name| self.children.get(name));
        if let Some(index) = chosen.map(|entry| entry.child.index()) {
            self.call_child(index, cx, |child, cx| child.exit_idle(cx));
        }
    }

    fn describe(&self, now: Time) -> PolicyView {
        let priorities = priorities(self.given.as_ref()).iter();
        let config = self.given.as_ref().and_then(Given::config);
        let child = |name: &Arc<str>| {
            let label = config.map(|config| config.label(name)).unwrap_or_default();
            let Some(ChildEntry { child, data: timers }) = self.children.get(name) else {
                let config = config.and_then(|config| config.children.get(name));
                let policy = config.map(|child| child.config.policy_name().to_owned()).unwrap_or_default();
                let node = PolicyView { policy, ..PolicyView::default() };
                return ChildPolicyView {
                    role: Some("not created".to_owned()),
                    ..ChildPolicyView::new(label, node)
                };
            };
            let failing = child.output().state == ConnectivityState::TransientFailure;
            let role = if self.serving.as_ref() == Some(name) {
                if failing { "failing" } else { "serving" }
            } else if timers.is_deactivated() {
                "deactivated"
            } else {
                "standby"
            };
            ChildPolicyView {
                role: Some(role.to_owned()),
                ..ChildPolicyView::new(label, child.describe(now))
            }
        };
        let is_ready = matches!(self.published, Some((ConnectivityState::Ready, _)));
        let changed = self.shown.change(now).filter(|_| is_ready);
        let details = priorities.clone().filter_map(|name| self.failover_timer(name, now)).collect();
        PolicyView { changed, details, children: priorities.map(child).collect(), ..PolicyView::default() }
    }
}

impl Priority {
    /// The failover timer of a child, for inspection, while it is running.
    fn failover_timer(&self, name: &Arc<str>, now: Time) -> Option<Detail> {
        let left = self.children.get(name)?.data.failover_in(now)?;
        let label = self.given.as_ref()?.config()?.label(name);
        Some(Detail::new("failover timer", label).with_seconds("ends_in_seconds", left))
    }

    fn call_child(&mut self, index: ChildIndex, cx: &mut dyn Cx, f: impl FnOnce(&mut Child, &mut dyn Cx)) {
        let Some(entry) = self.children.at(index) else { return };
        let ((), published) = call(entry, &mut self.timers, cx, f);
        if published {
            self.choose_after_event(cx);
        }
    }

    fn on_own_timer(&mut self, tag: u32, cx: &mut dyn Cx) {
        let expire = |(name, entry): (&Arc<str>, &mut ChildEntry<ChildTimers>)| {
            Some((Arc::clone(name), entry.data.expire(tag)?))
        };
        let expired = self.children.iter_mut().find_map(expire);
        match expired {
            // X-14, A56: the end of the failover timer is not a failure of the child: it only allows another choice.
            Some((name, Expired::Failover)) => {
                tracing::debug!(target: targets::PRIORITY_LB, %name, "failover timer ran out")
            }
            // X-15, A56: a child that was deactivated for this long is dropped.
            Some((name, Expired::Retention)) => {
                tracing::debug!(target: targets::PRIORITY_LB, %name, "dropped after being deactivated");
                self.children.remove(&name);
            }
            None => return,
        }
        self.choose_after_event(cx);
    }

    fn choose_after_event(&mut self, cx: &mut dyn Cx) {
        let mut errors = Vec::new();
        self.choose(&mut errors, cx);
        for error in errors {
            tracing::warn!(target: targets::PRIORITY_LB, %error, "a child rejected its first update");
        }
    }

    /// Chooses a child, creating children as the choice reaches them, and publishes the result.
    fn choose(&mut self, errors: &mut Vec<String>, cx: &mut dyn Cx) {
        loop {
            match choose(&self.states()) {
                PriorityChoice::Nothing => {
                    self.chosen = None;
                    // A56: an empty list of priorities is a failure.
                    return self.fail("priority policy has empty priority list", cx);
                }
                PriorityChoice::Create(priority) => errors.extend(self.create(priority, cx)),
                PriorityChoice::Use { priority, serving, reached, lower } => {
                    self.activate(reached, lower, cx);
                    return self.set_current(priority, serving, cx);
                }
            }
        }
    }

    fn states(&self) -> Vec<PriorityState> {
        let state = |name: &Arc<str>| {
            self.children.get(name).map_or(PriorityState::Absent, |entry| PriorityState::Present {
                state: entry.child.output().state,
                failover_pending: entry.data.is_failover_pending(),
                carried_over: self.carried_over.as_ref() == Some(name),
            })
        };
        priorities(self.given.as_ref()).iter().map(state).collect()
    }

    /// Creates and updates the child of a priority. Returns the error of its update, if any.
    ///
    /// Always creates one, since a configuration that names an undefined child is rejected; so `choose` terminates.
    fn create(&mut self, priority: usize, cx: &mut dyn Cx) -> Option<String> {
        let given = self.given.as_ref()?;
        let PriorityConfig { priorities, children, .. } = given.config()?;
        let name = priorities.get(priority)?;
        let config = children.get(name)?;
        let update = given.update_of(name, &config.config);
        tracing::debug!(target: targets::PRIORITY_LB, %name, priority, "creating child");
        let failover = self.timers.start(self.timers.failover_timeout, cx);
        let entry =
            self.children.get_or_insert_with(Arc::clone(name), &config.config, || ChildTimers::new(failover));
        entry.child.set_reresolution(reresolution(config));
        let (result, _) = call(entry, &mut self.timers, cx, |child, cx| child.update(&update, cx));
        result.err().map(|error| format!("child {name}: {error}"))
    }

    /// X-15, A56: children that the choice reached are kept; those below a usable one are deactivated.
    fn activate(&mut self, reached: usize, lower: Lower, cx: &mut dyn Cx) {
        for (priority, name) in priorities(self.given.as_ref()).iter().enumerate() {
            let Some(entry) = self.children.get_mut(name) else { continue };
            if priority <= reached {
                entry.data.reactivate();
            } else if lower == Lower::Deactivated {
                entry.data.deactivate(|| self.timers.start(RETENTION, cx));
            }
        }
    }

    fn set_current(&mut self, priority: usize, serving: usize, cx: &mut dyn Cx) {
        let name_of = |priority: usize| priorities(self.given.as_ref()).get(priority).cloned();
        let (chosen, serving) = (name_of(priority), name_of(serving));
        let state_of =
            |name: &Option<Arc<str>>| Some(self.children.get(name.as_ref()?)?.child.output().state);
        if state_of(&chosen) == Some(ConnectivityState::Ready) {
            self.carried_over = None;
        }
        if self.chosen != chosen {
            tracing::debug!(target: targets::PRIORITY_LB, priority, name = chosen.as_deref(), "priority chosen");
        }
        let output = serving
            .as_ref()
            .and_then(|name| self.children.get(name))
            .map(|entry| entry.child.output().clone());
        if let (Some(name), Some(ConnectivityState::Ready)) = (&serving, output.as_ref().map(|o| o.state))
            && let Some(config) = self.given.as_ref().and_then(Given::config)
            && let Some(event) = self.shown.by(name, config, cx.now())
        {
            cx.record(event);
        }
        (self.chosen, self.serving) = (chosen, serving);
        if let Some(output) = output {
            self.publish(output.state, output.picker, cx);
        }
    }

    fn fail(&mut self, why: &str, cx: &mut dyn Cx) {
        self.serving = None;
        self.publish(ConnectivityState::TransientFailure, FailPicker::new(PickError::unavailable(why)), cx);
    }

    /// Publishes, unless the parent has the same output already.
    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>, cx: &mut dyn Cx) {
        let same = self.published.as_ref().is_some_and(|(old_state, old)| {
            *old_state == state && std::ptr::addr_eq(Arc::as_ptr(old), Arc::as_ptr(&picker))
        });
        if !same {
            self.published = Some((state, Arc::clone(&picker)));
            cx.publish(state, picker);
        }
    }
}

/// Calls a child. Returns true if it published; its failover timer then follows its new state.
fn call<R>(
    entry: &mut ChildEntry<ChildTimers>,
    timers: &mut TimerStarter,
    cx: &mut dyn Cx,
    f: impl FnOnce(&mut Child, &mut dyn Cx) -> R,
) -> (R, bool) {
    let ChildEntry { child, data } = entry;
    let result = f(child, &mut *cx);
    let published = child.take_dirty();
    if published {
        data.on_state(child.output().state, timers, cx);
    }
    (result, published)
}

/// A37-58, A37-61: an EDS leaf that reconnects must not cause DNS queries for its siblings.
fn reresolution(config: &PriorityChild) -> Reresolution {
    match config.ignore_reresolution_requests {
        true => Reresolution::Ignored,
        false => Reresolution::Forwarded,
    }
}

impl Given {
    fn config(&self) -> Option<&PriorityConfig> {
        config_of(NAME, &self.0.config).ok()
    }

    /// The update for the child of this name.
    fn update_of(&self, name: &str, config: &Arc<dyn PolicyConfig>) -> Update {
        Update { config: Arc::clone(config), endpoints: self.0.endpoints.group(name), ..self.0.clone() }
    }
}

/// The names of the children, the most preferred first.
fn priorities(given: Option<&Given>) -> &[Arc<str>] {
    given.and_then(Given::config).map_or(&[], |config| &config.priorities)
}

fn good_config(config: &Arc<dyn PolicyConfig>) -> Result<&PriorityConfig, ConfigError> {
    let config: &PriorityConfig = config_of(NAME, config)?;
    config.problems().map_or(Ok(config), |reason| Err(ConfigError { policy: NAME, reason }))
}
