//! The tree: owns the root policy, the handles of policies, the timers and the subchannel pool.
//!
//! Every input is processed completely before the call returns: subchannel events are delivered from the root to their
//! owners and dropped handles are released until nothing is left. Policies therefore never call each other back, and
//! each input publishes at most once.

mod core;
mod io;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use proxyless_sans_io::Time;
use proxyless_sans_io::metrics::Meter;

pub use crate::pool::StreamDemand;
pub use io::{
    AttemptId, ConnectionCalls, ConnectionEvent, ConnectionNode, LoadEvent, LoadStreamId, Loss, Publication,
    SecurityLevel, SubchannelId, SubchannelNode, TreeConfig, TreeEffect, TreeStats,
};

use self::core::Core;
use crate::api::{
    CallCounts, Child, ChildIndex, ChildOutput, ConfigError, PolicyEvent, PolicyView, SharedTreePath,
    TreeEvent, Update, Wake,
};

/// The single child of the tree itself.
const ROOT: ChildIndex = ChildIndex(0);

/// A tree of policies with its connections.
///
/// After each input the caller drains [`Tree::poll_effect`], checks [`Tree::take_published`], and schedules
/// [`Tree::on_tick`] for [`Tree::next_deadline`].
pub struct Tree {
    root: Option<Child>,
    core: Core,
    rootless: ChildOutput,
    taken: ChildOutput,
}

impl Tree {
    /// Creates a tree without policies, whose randomness is that of `seed`. `wake` is called from the data path when
    /// [`Tree::on_signals`] must be called.
    #[must_use]
    pub fn new(config: TreeConfig, seed: u64, wake: Arc<dyn Wake>) -> Self {
        let rootless = ChildOutput::default();
        Self { root: None, core: Core::new(config, seed, wake), taken: rootless.clone(), rootless }
    }

    /// Records its metrics with this meter; to be called before the first input.
    #[must_use]
    pub fn metered(mut self, meter: Meter) -> Self {
        self.core.pool.set_meter(meter.clone());
        self.core.meter = meter;
        self
    }

    /// Updates the root policy, building it first if there is none.
    ///
    /// # Errors
    /// If the root policy rejects the update.
    pub fn update(&mut self, now: Time, update: &Update) -> Result<(), ConfigError> {
        self.core.now = now;
        let root = self.root.get_or_insert_with(|| Child::new(ROOT, &update.config));
        let result = root.update(update, &mut self.core);
        self.finish();
        result
    }

    /// Handles answers to [`TreeEffect::Connect`], in order: a thousand cost one new picker. Answers to earlier attempts
    /// are ignored.
    pub fn on_connections(
        &mut self,
        now: Time,
        events: impl IntoIterator<Item = (SubchannelId, AttemptId, ConnectionEvent)>,
    ) {
        self.core.now = now;
        for (subchannel, attempt, event) in events {
            match event {
                ConnectionEvent::Load(stream, event) => self.core.on_load(subchannel, stream, event),
                event => self.core.pool.answer(now, subchannel, attempt, event),
            }
            self.settle();
        }
        self.finish();
    }

    /// Delivers the signals raised by pickers to their policies, and looks at the subchannels whose calls wait for a
    /// stream.
    pub fn on_signals(&mut self, now: Time) {
        self.core.now = now;
        while let Some(message) = self.core.next_signal() {
            self.tell_root(&message.path, TreeEvent::Signal(message.tag));
        }
        self.core.pool.on_demand();
        self.finish();
    }

    /// Fires everything that is due, in time order.
    pub fn on_tick(&mut self, now: Time) {
        self.core.now = now;
        // A timer set during this tick waits for the next one, even if it is due at once, to prevent endless loops.
        let limit = self.core.new_id();
        loop {
            let pool = self.core.pool.next_deadline().filter(|&at| at <= now);
            let timer = self.core.next_timer().filter(|&at| at <= now);
            let pool_is_first = pool.is_some_and(|at| timer.is_none_or(|timer| at <= timer));
            let message = if pool_is_first { None } else { self.core.expire_timer(limit) };
            match message {
                Some(message) => self.tell_root(&message.path, TreeEvent::Timer(message.tag)),
                None if pool.is_some() => {
                    self.core.pool.expire(now);
                    self.settle();
                }
                None => break,
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

    /// Ends all connection backoffs, for instance when the network is back.
    pub fn reset_backoff(&mut self, now: Time) {
        self.core.now = now;
        self.core.pool.reset_backoff(now);
        self.finish();
    }

    /// The time at which [`Tree::on_tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        [self.core.next_timer(), self.core.pool.next_deadline()].into_iter().flatten().min()
    }

    /// Returns the next effect for the driver.
    pub fn poll_effect(&mut self) -> Option<TreeEffect> {
        self.core.pool.poll_effect()
    }

    /// Returns whether a policy has requested re-resolution since the last call.
    pub fn take_reresolution_request(&mut self) -> bool {
        std::mem::take(&mut self.core.reresolution_requested)
    }

    /// The root's last output; CONNECTING while there is no root.
    #[must_use]
    pub fn output(&self) -> &ChildOutput {
        self.root.as_ref().map_or(&self.rootless, Child::output)
    }

    /// Returns whether the data path must be updated: because the state or picker changed, or only because queued RPCs
    /// must pick again.
    pub fn take_published(&mut self) -> Option<Publication> {
        let lost = self.core.pool.take_lost();
        let bumped = std::mem::take(&mut self.core.bumped);
        let output = self.output();
        if output.state != self.taken.state || !Arc::ptr_eq(&output.picker, &self.taken.picker) {
            self.taken = output.clone();
            Some(Publication::Changed)
        } else {
            (lost || bumped).then_some(Publication::Bump)
        }
    }

    /// Drops the root policy and closes every connection.
    pub fn shutdown(&mut self, now: Time) {
        self.core.now = now;
        self.root = None;
        self.settle();
        self.core.pool.close_all();
        self.core.reresolution_requested = false;
    }

    /// Describes the policies; `None` while there are none.
    #[must_use]
    pub fn describe(&self, now: Time) -> Option<PolicyView> {
        let mut root = self.root.as_ref()?.describe(now);
        root.say_errors_once();
        Some(root)
    }

    /// The policies' decisions since the last call; only the latest if there are very many.
    pub fn take_events(&mut self) -> impl Iterator<Item = PolicyEvent> + use<> {
        std::mem::take(&mut self.core.events).into_iter()
    }

    /// Describes the subchannels.
    #[must_use]
    pub fn subchannels(&self) -> Vec<SubchannelNode> {
        self.core.pool.describe()
    }

    /// The calls that ended on any connection so far.
    #[must_use]
    pub fn calls(&self) -> CallCounts {
        self.core.pool.calls()
    }

    /// The number of objects in the tree.
    #[must_use]
    pub fn stats(&self) -> TreeStats {
        self.core.stats()
    }

    fn tell_root(&mut self, path: &SharedTreePath, event: TreeEvent<'_>) {
        self.core.pass_down(self.root.as_mut(), path, event);
        self.settle();
    }

    /// Delivers events and releases dropped handles until nothing is left.
    fn settle(&mut self) {
        loop {
            self.core.drain_releases();
            let Some(event) = self.core.pool.poll_event() else {
                let Some((owner, metrics)) = self.core.pool.poll_report() else { break };
                if let Some(path) = self.core.path_to(owner) {
                    self.core.pass_down(self.root.as_mut(), &path, TreeEvent::Load(&metrics));
                }
                continue;
            };
            if let Some(path) = self.core.path_to(event.subchannel) {
                self.core.pass_down(self.root.as_mut(), &path, TreeEvent::Subchannel(&event));
            }
        }
    }

    fn finish(&mut self) {
        self.settle();
        while let Some(message) = self.core.next_deferred() {
            self.tell_root(&message.path, TreeEvent::Signal(message.tag));
        }
        self.core.finish_pool();
    }
}
