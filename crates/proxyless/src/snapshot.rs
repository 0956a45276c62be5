//! The snapshot that the data path reads: immutable routes and pickers, replaced as a whole.

use std::fmt;
use std::sync::Arc;

use proxyless_balancer::api::{CallCounter, ConnectivityState, FailPicker, PickError};
use proxyless_mesh::channel_core::DataPlane;
use proxyless_sans_io::sync::OnceLock;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proxyless_transport::panics::Panicked;
use tokio::sync::watch;

use crate::activity::Activity;
use crate::filters::Faults;
use crate::pending::{Connecting, Missing};
use crate::state::ChannelState;
use crate::sync::{ArcSwap, CancellationToken};

/// The driver of a channel, by the number of panics before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverId(u64);

/// One generation of the channel's configuration.
pub(crate) struct Snapshot {
    /// Routes and pickers; `None` while the channel is IDLE, and then until the configuration has arrived.
    pub(crate) data: Option<DataPlane>,
    /// Whether a reader without data has notified the driver.
    asked: AtomicBool,
    /// Ends the wait of calls that found nothing usable in this generation. Each generation wakes only its own waiters.
    pub(crate) superseded: CancellationToken,
    /// The driver that published it: each driver assigns its own cluster ids.
    pub(crate) driver: DriverId,
}

impl Snapshot {
    fn new(data: Option<DataPlane>, driver: DriverId) -> Self {
        Self { data, asked: AtomicBool::new(false), superseded: CancellationToken::new(), driver }
    }

    /// Whether the channel is IDLE, and the caller is the first to need it. No RPC can be lost: it sees this snapshot,
    /// or an older one and then, woken by its end, this one.
    pub(crate) fn is_first_use(&self) -> bool {
        // The load keeps the cache line shared by waiters.
        self.data.is_none()
            && !self.asked.load(Ordering::Relaxed)
            && !self.asked.swap(true, Ordering::Relaxed)
    }
}

/// The slot that the channel's driver publishes into and calls read.
pub(crate) struct Published {
    current: ArcSwap<Snapshot>,
    state: watch::Sender<ChannelState>,
    /// Set when the channel's task has ended: there will be no further snapshots.
    ended: OnceLock<End>,
    /// The number of drivers that panicked. Only the channel's task writes it.
    panics: AtomicU64,
    pub(crate) activity: Activity,
    /// The requested resources that have not arrived, for the errors of calls that waited for them.
    pub(crate) missing: Missing,
    /// The connection attempts in progress, for the same errors.
    pub(crate) connecting: Connecting,
    /// The calls that failed without a connection; the others are counted by their connections.
    pub(crate) unsent: CallCounter,
    /// The attempts that failed without ending their calls.
    pub(crate) retried: CallCounter,
    /// The faults injected into calls (gRFC A33).
    pub(crate) faults: Faults,
}

/// The reason why a channel's task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The last handle or the runtime of the channel was dropped.
    Dropped,
    /// It panicked in a way that another driver would repeat.
    Panicked(Panicked),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => f.write_str("the runtime in which the channel was made has ended"),
            Self::Panicked(why) => write!(f, "the task of the channel cannot run: {why}"),
        }
    }
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            current: ArcSwap::from_pointee(Snapshot::new(None, DriverId(0))),
            state: watch::Sender::new(ChannelState::Idle),
            ended: OnceLock::new(),
            panics: AtomicU64::new(0),
            activity: Activity::new(),
            missing: Missing::default(),
            connecting: Connecting::default(),
            unsent: CallCounter::default(),
            retried: CallCounter::default(),
            faults: Faults::default(),
        }
    }

    /// The latest snapshot. The guard must not be held across an await.
    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Replaces the snapshot, then wakes the waiters of the old one. A reader of the new state finds its snapshot.
    pub(crate) fn publish(&self, data: DataPlane) {
        let state = data.state.into();
        self.replace(Some(data), state);
    }

    /// The channel is IDLE: the next call must notify the driver.
    pub(crate) fn enter_idle(&self) {
        self.replace(None, ChannelState::Idle);
    }

    /// The driver has panicked: its snapshot and its requests are void.
    pub(crate) fn fail(&self, error: Arc<PickError>) {
        self.panics.fetch_add(1, Ordering::Relaxed);
        self.missing.clear();
        self.connecting.clear();
        let picker = FailPicker::new(Arc::clone(&error));
        let state = ConnectivityState::TransientFailure;
        self.publish(DataPlane { generation: 0, state, routes: Err(error), picker });
    }

    /// A new driver replaces one that panicked: RPCs wait for its first snapshot.
    pub(crate) fn restart(&self, state: ChannelState) {
        self.replace(None, state);
    }

    fn replace(&self, data: Option<DataPlane>, state: ChannelState) {
        let new = Snapshot::new(data, DriverId(self.panics.load(Ordering::Relaxed)));
        let old = self.current.swap(Arc::new(new));
        self.set_state(state);
        old.superseded.cancel();
    }

    /// The channel's task has ended: wakes all waiting calls.
    pub(crate) fn end(&self, end: End) {
        // Before the cancellation, so that woken calls find the reason.
        let _ = self.ended.set(end);
        self.set_state(ChannelState::Shutdown);
        self.current.load().superseded.cancel();
    }

    /// The reason why there will be no further snapshot, if that is so.
    pub(crate) fn ended(&self) -> Option<End> {
        self.ended.get().cloned()
    }

    /// Sets the state without a new configuration.
    pub(crate) fn set_state(&self, state: ChannelState) {
        self.state.send_if_modified(|current| std::mem::replace(current, state) != state);
    }

    /// A view of the state.
    pub(crate) fn states(&self) -> watch::Receiver<ChannelState> {
        self.state.subscribe()
    }
}
