//! The snapshot that the data path reads: immutable routes and pickers, replaced as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proxyless_balancer::api::{CallCounter, ConnectivityState, FailPicker, PickError};
use proxyless_balancer::tree::{AttemptId, SubchannelId};
use proxyless_mesh::channel_core::DataPlane;
use proxyless_sans_io::sync::OnceLock;
use proxyless_sans_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use proxyless_transport::panics::Panicked;
use proxyless_xds::client::WatchId;
use proxyless_xds::resource::ResourceType;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::activity::Activity;
use crate::state::ChannelState;
use crate::sync::{ArcSwap, CancellationToken};

/// One generation of the channel's configuration.
pub(crate) struct Snapshot {
    /// Routes and pickers; `None` while the channel is IDLE, and then until the configuration has arrived.
    pub(crate) data: Option<DataPlane>,
    /// Whether a reader without data has notified the driver.
    asked: AtomicBool,
    /// Ends the wait of calls that found nothing usable in this generation. Each generation wakes only its own waiters.
    pub(crate) superseded: CancellationToken,
    /// The number of the driver that published it: each driver numbers clusters in its own way.
    pub(crate) driver: u64,
}

impl Snapshot {
    fn new(data: Option<DataPlane>, driver: u64) -> Self {
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
    activity: Activity,
    /// The requested resources that have not arrived, for the errors of calls that waited for them.
    missing: Missing,
    connecting: Connecting,
    unsent: CallCounter,
    retried: CallCounter,
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

/// Resources that the management server has not answered yet.
///
/// Locked by the driver, and by calls only to report an error.
#[derive(Default)]
pub(crate) struct Missing(Mutex<BTreeMap<WatchId, Asked>>);

struct Asked {
    kind: ResourceType,
    name: Arc<str>,
    since: Instant,
}

impl Missing {
    pub(crate) fn asked(&self, watch: WatchId, kind: ResourceType, name: &Arc<str>) {
        self.lock().insert(watch, Asked { kind, name: Arc::clone(name), since: Instant::now() });
    }

    pub(crate) fn answered(&self, watch: WatchId) {
        self.lock().remove(&watch);
    }

    fn clear(&self) {
        self.lock().clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WatchId, Asked>> {
        // The map is consistent whenever the lock is free, even if a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A status message is a header: a mesh of a thousand clusters must not fill it.
const MOST: usize = 5;

/// The connection attempts in progress.
///
/// Locked by the driver, and by calls only to report an error.
#[derive(Default)]
pub(crate) struct Connecting(Mutex<BTreeMap<(SubchannelId, AttemptId), SocketAddr>>);

impl Connecting {
    pub(crate) fn began(&self, connection: SubchannelId, attempt: AttemptId, address: SocketAddr) {
        self.lock().insert((connection, attempt), address);
    }

    pub(crate) fn ended(&self, connection: SubchannelId, attempt: AttemptId) {
        self.lock().remove(&(connection, attempt));
    }

    fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(SubchannelId, AttemptId), SocketAddr>> {
        // The map is consistent whenever the lock is free, even if a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attempts = self.lock();
        for (number, address) in attempts.values().take(MOST).enumerate() {
            write!(f, "{}{address}", if number == 0 { ", connecting to " } else { ", " })?;
        }
        match attempts.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resources = self.lock();
        for (number, Asked { kind, name, since }) in resources.values().take(MOST).enumerate() {
            let separator = if number == 0 { "; waiting for " } else { ", " };
            write!(f, "{separator}{} {name} (requested {:.1?} ago)", kind.name(), since.elapsed())?;
        }
        match resources.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more resources"),
        }
    }
}

impl Published {
    pub(crate) fn new() -> Self {
        Self {
            current: ArcSwap::from_pointee(Snapshot::new(None, 0)),
            state: watch::Sender::new(ChannelState::Idle),
            ended: OnceLock::new(),
            panics: AtomicU64::new(0),
            activity: Activity::new(),
            missing: Missing::default(),
            connecting: Connecting::default(),
            unsent: CallCounter::default(),
            retried: CallCounter::default(),
        }
    }

    /// The calls that failed without a connection; the others are counted by their connections.
    pub(crate) fn unsent(&self) -> &CallCounter {
        &self.unsent
    }

    /// The attempts that failed without ending their calls.
    pub(crate) fn retried(&self) -> &CallCounter {
        &self.retried
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
        let new = Snapshot::new(data, self.panics.load(Ordering::Relaxed));
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

    /// The channel's activity.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Sets the state without a new configuration.
    pub(crate) fn set_state(&self, state: ChannelState) {
        self.state.send_if_modified(|current| std::mem::replace(current, state) != state);
    }

    /// A view of the state.
    pub(crate) fn states(&self) -> watch::Receiver<ChannelState> {
        self.state.subscribe()
    }

    /// The missing resources.
    pub(crate) fn missing(&self) -> &Missing {
        &self.missing
    }

    /// The addresses being connected to.
    pub(crate) fn connecting(&self) -> &Connecting {
        &self.connecting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_is_missing_but_not_all_of_a_thousand() {
        let missing = Missing::default();
        for number in 0..1000 {
            missing.asked(WatchId(number), ResourceType::Cluster, &format!("c{number}").into());
        }
        let text = missing.to_string();
        assert!(
            text.starts_with("; waiting for Cluster c0 (requested ")
                && text.ends_with(" and 995 more resources"),
            "{text}"
        );
        assert!(text.len() < 500, "{text}");
        (1..1000).for_each(|number| missing.answered(WatchId(number)));
        let text = missing.to_string();
        assert!(
            text.starts_with("; waiting for Cluster c0 (requested ") && text.ends_with(" ago)"),
            "{text}"
        );
        missing.answered(WatchId(0));
        assert_eq!(missing.to_string(), "");
    }

    #[test]
    fn errors_name_what_is_being_connected_to_but_not_all_of_a_thousand() {
        let connecting = Connecting::default();
        for number in 0..1000 {
            connecting.began(SubchannelId(number), AttemptId(1), ([10, 0, 0, 1], 80).into());
        }
        let text = connecting.to_string();
        assert!(text.starts_with(", connecting to 10.0.0.1:80, 10.0.0.1:80"), "{text}");
        assert!(text.ends_with(" and 995 more") && text.len() < 120, "{text}");
        (1..1000).for_each(|number| connecting.ended(SubchannelId(number), AttemptId(1)));
        assert_eq!(connecting.to_string(), ", connecting to 10.0.0.1:80");
        connecting.ended(SubchannelId(0), AttemptId(1));
        assert_eq!(connecting.to_string(), "");
    }
}
