//! Runs the driver of a channel, and starts another one when it panics.
//!
//! A driver that panicked is dropped as a whole, with its watches, load reports, connections and tasks. Calls on its
//! connections finish there; all others fail with the panic's message until the next driver has a configuration, or
//! wait for it if they are wait-for-ready.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::api::{CallCounts, ConnectivityState, PickError};
use proxyless_mesh::channel_core::{ChannelConfig, ChannelCore, TreeView};
use proxyless_mesh::route_table::ChannelHash;
use proxyless_sans_io::Time;
use proxyless_transport::ConnectOptions;
use proxyless_transport::dns::Resolve;
use proxyless_transport::panics::{Panicked, catch, contain};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};

use super::channel::{ChannelDriver, Command, DriverWake};
use super::connection::Connections;
use super::describe::Ids;
use super::dns::Lookups;
use super::restarts::Restarts;
use super::security::ConnectionSecurity;
use super::subscription::Subscription;
use super::trace::Trace;
use super::{describe, explain, panics};
use crate::call::PolicyRetries;
use crate::client_pool::ClientSource;
use crate::clock;
use crate::inspect::ChannelView;
use crate::snapshot::{End, Published};

/// The parts from which the drivers of one channel are built.
pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) target: Arc<str>,
    pub(crate) config: ChannelConfig,
    pub(crate) published: Arc<Published>,
    pub(crate) clients: ClientSource,
    pub(crate) security: ConnectionSecurity,
    pub(crate) options: ConnectOptions,
    pub(crate) resolver: Arc<dyn Resolve>,
    /// The hash of the channel, as RPCs use it.
    pub(crate) hash: ChannelHash,
    /// Whether RPCs use the retry policies of routes.
    pub(crate) policy_retries: PolicyRetries,
}

/// The facts of a channel, for inspection, that outlive its drivers.
pub(super) struct History {
    pub(super) created: Time,
    pub(super) trace: Trace,
    /// The number of drivers after the first.
    pub(super) restarts: u64,
    /// The calls that ended on connections of earlier drivers.
    pub(super) calls: CallCounts,
}

impl Default for History {
    fn default() -> Self {
        Self { created: clock::now(), trace: Trace::default(), restarts: 0, calls: CallCounts::default() }
    }
}

/// Whether the channel is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    InUse,
    Idle,
}

/// Whether the channel has handles.
enum Handles {
    Left,
    Gone,
}

/// The task of a channel.
struct Supervisor {
    parts: Arc<Parts>,
    history: History,
    restarts: Restarts,
}

/// Runs a channel in `runtime` until the last sender of its commands is dropped, and lists it in its pool for
/// inspection.
pub(crate) fn spawn(parts: Parts, runtime: &Handle) -> UnboundedSender<Command> {
    let (commands, inbox) = unbounded_channel();
    parts.clients.pool.list(parts.id, &commands);
    let supervisor =
        Supervisor { parts: Arc::new(parts), history: History::default(), restarts: Restarts::default() };
    runtime.spawn(supervisor.run(inbox));
    commands
}

impl Supervisor {
    /// Runs until the last handle of the channel is gone.
    async fn run(mut self, mut commands: UnboundedReceiver<Command>) {
        let mut wanted = Use::Idle;
        loop {
            let started = Instant::now();
            let history = std::mem::take(&mut self.history);
            // It is not a part of the future that may panic: its destructors must not run while a panic unwinds.
            let mut driver = match contain(|| self.parts.driver(history)) {
                Ok(driver) => driver,
                // A core that cannot even be created: another attempt would end in the same way.
                Err(panicked) => return self.parts.published.end(End::Panicked(panicked)),
            };
            let ended = catch(driver.run(wanted, &mut commands)).await;
            self.history = std::mem::take(&mut driver.history);
            let Err(panicked) = ended else { return };
            let pause = self.restarts.pause(started.elapsed(), &mut clock::rng());
            // Before its connections are closed, so that calls find this reason.
            let error = self.fail(&panicked, pause);
            wanted = contain(|| driver.usage()).unwrap_or(Use::InUse);
            self.history.calls += contain(|| driver.calls()).unwrap_or_default();
            if let Err(panicked) = contain(move || drop(driver)) {
                panics::log(&"the end of a channel", &panicked);
            }
            match catch(self.pause(pause, &error, &mut wanted, &mut commands)).await {
                Ok(Handles::Left) => self.restart(wanted),
                Ok(Handles::Gone) => return,
                // It cannot even wait, as in a runtime without timers.
                Err(panicked) => return self.parts.published.end(End::Panicked(panicked)),
            }
        }
    }

    /// The driver has panicked: calls fail until the next one publishes. Returns their error.
    fn fail(&mut self, panicked: &Panicked, pause: Duration) -> Arc<PickError> {
        let Parts { target, published, .. } = &*self.parts;
        panics::log(&format_args!("channel {target}"), panicked);
        self.history.trace.panicked(panicked);
        let error = PickError::unavailable(format!(
            "{target}: the task of the channel panicked ({panicked}), which is a bug; it starts again after {pause:.1?}"
        ));
        // The wakers of calls may panic.
        if let Err(panicked) = contain(|| published.fail(Arc::clone(&error))) {
            panics::log(&"a call that was woken", &panicked);
        }
        error
    }

    /// Waits, and answers requests meanwhile.
    async fn pause(
        &self,
        pause: Duration,
        error: &PickError,
        wanted: &mut Use,
        commands: &mut UnboundedReceiver<Command>,
    ) -> Handles {
        let mut over = pin!(sleep(pause));
        loop {
            tokio::select! {
                () = &mut over => return Handles::Left,
                command = commands.recv() => match command {
                    Some(Command::ExitIdle) => *wanted = Use::InUse,
                    // The requester may have gone.
                    Some(Command::Describe { answer }) => drop(answer.send(self.describe(error))),
                    Some(Command::Explain { request, answer }) => {
                        drop(answer.send(explain::failing(&self.parts, &request, error)));
                    }
                    // There are no connections.
                    Some(Command::ResetBackoff) => {}
                    None => return Handles::Gone,
                },
            }
        }
    }

    fn describe(&self, error: &PickError) -> ChannelView {
        let tree = TreeView::failing(&self.parts.config.listener_name, error.message.clone());
        describe::view(&self.parts, &self.history, tree, Vec::new(), |_| None)
    }

    fn restart(&mut self, wanted: Use) {
        self.history.restarts += 1;
        self.history.trace.restarted(self.history.restarts);
        let state = match wanted {
            Use::InUse => ConnectivityState::Connecting,
            Use::Idle => ConnectivityState::Idle,
        };
        self.history.trace.state(state);
        if let Err(panicked) = contain(|| self.parts.published.restart(state.into())) {
            panics::log(&"a call that was woken", &panicked);
        }
    }
}

/// Also if the runtime drops the task unfinished, or before it began.
impl Drop for Supervisor {
    fn drop(&mut self) {
        self.parts.published.end(End::Dropped);
    }
}

impl Parts {
    fn driver(self: &Arc<Self>, history: History) -> ChannelDriver {
        let wake = Arc::new(DriverWake::default());
        let config = ChannelConfig { seed: clock::seed(), ..self.config.clone() };
        let core = ChannelCore::new(config, Arc::clone(&wake) as _);
        let (subscription, xds_events) = Subscription::new(self.clients.clone());
        let (updates, connection_updates) = unbounded_channel();
        ChannelDriver {
            parts: Arc::clone(self),
            core,
            wake,
            subscription,
            xds_events,
            connections: Connections::new(self.security.clone(), self.options.clone(), updates),
            connection_updates,
            dns: Lookups::new(Arc::clone(&self.resolver)),
            history,
            ids: Ids::default(),
        }
    }
}
