//! The tree: owns the root policy, the ids of what policies hold, the timers and the subchannel pool.
//!
//! Every input is worked off completely before the call returns: events of subchannels are delivered from the root to
//! the leaf that owns them, dropped handles are dealt with, until nothing is left. Policies therefore never call each
//! other back, and one input changes what is published at most once.

mod core;
mod io;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use proxyless_sans_io::Time;

pub use io::{ConnectionEvent, ConnectionId, ConnectionNode, Published, TreeConfig, TreeEffect, TreeStats};

use self::core::{Core, Message};
use crate::api::{
    CallCounts, Child, ChildIndex, ChildOutput, ConfigError, Cx, PolicyEvent, PolicyNode, Route, Update, Wake,
};

/// The one child of the tree itself.
const ROOT: ChildIndex = ChildIndex(0);

/// A tree of policies with its connections.
///
/// After each input, the caller drains [`Tree::poll_effect`], looks at [`Tree::take_published`], and plans to call
/// [`Tree::on_tick`] at [`Tree::next_deadline`].
pub struct Tree {
    root: Option<Child>,
    core: Core,
    rootless: ChildOutput,
    taken: ChildOutput,
}

impl Tree {
    /// A tree without policies. `wake` is called from the data path when a picker wants [`Tree::on_signals`] to be
    /// called.
    #[must_use]
    pub fn new(config: TreeConfig, wake: Arc<dyn Wake>) -> Self {
        let rootless = ChildOutput::default();
        Self { root: None, core: Core::new(config, wake), taken: rootless.clone(), rootless }
    }

    /// Updates the root policy; makes it first if there is none.
    ///
    /// # Errors
    /// What the root says.
    pub fn update(&mut self, now: Time, update: &Update) -> Result<(), ConfigError> {
        self.core.now = now;
        let root = self.root.get_or_insert_with(|| Child::new(ROOT, &update.config));
        let result = root.update(update, &mut self.core);
        self.finish();
        result
    }

    /// Takes an answer to a [`TreeEffect::Connect`]. Answers of attempts that are over are ignored.
    pub fn on_connection(
        &mut self,
        now: Time,
        connection: ConnectionId,
        attempt: u64,
        event: ConnectionEvent,
    ) {
        self.on_connections(now, [(connection, attempt, event)]);
    }

    /// The same for several at once, in order: a thousand cost one new picker.
    pub fn on_connections(
        &mut self,
        now: Time,
        events: impl IntoIterator<Item = (ConnectionId, u64, ConnectionEvent)>,
    ) {
        self.core.now = now;
        for (connection, attempt, event) in events {
            self.core.pool.answer(now, connection, attempt, event);
            self.settle();
        }
        self.finish();
    }

    /// Hands the signals that pickers raised to their policies.
    pub fn on_signals(&mut self, now: Time) {
        self.core.now = now;
        while let Some(message) = self.core.next_signal() {
            self.tell_root(&message, |root, route, token, cx| root.on_signal(route, token, cx));
        }
        self.finish();
    }

    /// Fires what is due, in the order of time.
    pub fn on_tick(&mut self, now: Time) {
        self.core.now = now;
        // A timer that is set during this tick waits for the next one, even if it is due at once: no endless loop.
        let limit = self.core.new_id();
        loop {
            let pool = self.core.pool.next_deadline().filter(|&at| at <= now);
            let timer = self.core.next_timer().filter(|&at| at <= now);
            if let Some(at) = pool
                && timer.is_none_or(|timer| at <= timer)
            {
                self.core.pool.expire(now);
                self.settle();
            } else if let Some(message) = self.core.expire_timer(limit) {
                self.tell_root(&message, |root, route, token, cx| root.on_timer(route, token, cx));
            } else if pool.is_some() {
                self.core.pool.expire(now);
                self.settle();
            } else {
                break;
            }
        }
        self.finish();
    }

    /// Makes the policies connect instead of waiting for a call.
    pub fn exit_idle(&mut self, now: Time) {
        self.core.now = now;
        if let Some(root) = &mut self.root {
            root.exit_idle(&mut self.core);
        }
        self.finish();
    }

    /// Ends all connection backoffs, for a network that came back.
    pub fn reset_backoff(&mut self, now: Time) {
        self.core.now = now;
        self.core.pool.reset_backoff(now);
        self.finish();
    }

    /// When [`Tree::on_tick`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        [self.core.next_timer(), self.core.pool.next_deadline()].into_iter().flatten().min()
    }

    /// The next thing for the driver to do.
    pub fn poll_effect(&mut self) -> Option<TreeEffect> {
        self.core.pool.poll_effect().or_else(|| {
            std::mem::take(&mut self.core.reresolution_requested).then_some(TreeEffect::RequestReresolution)
        })
    }

    /// What the root last published; CONNECTING while there is no root.
    #[must_use]
    pub fn output(&self) -> &ChildOutput {
        self.root.as_ref().map_or(&self.rootless, Child::output)
    }

    /// Whether, since the last call, there is something to hand to the data path: another state or picker, or only
    /// the need to pick again because a connection was lost or a policy says so.
    pub fn take_published(&mut self) -> Option<Published> {
        let lost = self.core.pool.take_lost();
        let bumped = std::mem::take(&mut self.core.bumped);
        let output = self.output();
        if output.state != self.taken.state || !Arc::ptr_eq(&output.picker, &self.taken.picker) {
            self.taken = output.clone();
            Some(Published::Changed)
        } else {
            (lost || bumped).then_some(Published::Bump)
        }
    }

    /// Drops the root policy and ends every connection.
    pub fn shutdown(&mut self, now: Time) {
        self.core.now = now;
        self.root = None;
        self.settle();
        self.core.pool.close_all();
        self.core.reresolution_requested = false;
    }

    /// The policies, for people; `None` while there are none.
    #[must_use]
    pub fn describe(&self, now: Time) -> Option<PolicyNode> {
        let mut root = self.root.as_ref()?.describe(now);
        root.say_errors_once();
        Some(root)
    }

    /// What policies decided since the last call; of very many, the last ones.
    pub fn take_events(&mut self) -> impl Iterator<Item = PolicyEvent> + use<> {
        std::mem::take(&mut self.core.events).into_iter()
    }

    /// The connections, for people.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionNode> {
        self.core.pool.describe()
    }

    /// The calls that ended on any connection since the beginning.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.core.pool.calls()
    }

    /// How much the tree holds.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        self.core.stats()
    }

    fn tell_root(&mut self, message: &Message, tell: impl FnOnce(&mut Child, Route<'_>, u32, &mut dyn Cx)) {
        if let Some(root) = &mut self.root
            && let Some((_, route)) = message.route.route().next()
        {
            tell(root, route, message.token, &mut self.core);
        }
        self.settle();
    }

    /// Delivers events and deals with dropped handles until nothing is left.
    fn settle(&mut self) {
        loop {
            self.core.drain_releases();
            let Some(event) = self.core.pool.poll_event() else { break };
            if let Some(root) = &mut self.root
                && let Some(route) = self.core.route(event.subchannel)
                && let Some((_, route)) = route.route().next()
            {
                root.on_subchannel(route, &event, &mut self.core);
            }
        }
    }

    fn finish(&mut self) {
        self.settle();
        while let Some(message) = self.core.next_deferred() {
            self.tell_root(&message, |root, route, token, cx| root.on_signal(route, token, cx));
        }
        self.core.pool.finish(self.core.now);
    }
}
