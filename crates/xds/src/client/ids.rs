//! The ids of watchers, watches and tokens.

/// A management server: the index in [`XdsCoreConfig::servers`](super::XdsCoreConfig::servers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// The id of a watcher: a channel that shares the client. Chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId(pub u64);

/// The id of a watch, chosen by its watcher and unique among the watcher's watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

/// A watch of any watcher, unique within a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey {
    /// The watcher.
    pub watcher: WatcherId,
    /// The watcher's own id of the watch.
    pub watch: WatchId,
}

/// The receipt of an event: the driver returns it when the watcher has handled the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadToken(pub u64);
