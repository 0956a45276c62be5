//! The live connections of a subchannel, as calls see them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

#[cfg(not(proxyless_loom))]
use arc_swap::ArcSwapOption;

use super::CallCounter;

#[cfg(proxyless_loom)]
type ArcSwapOption<T> = proxyless_sans_io::sync::Stepped<arc_swap::ArcSwapOption<T>>;

/// A live connection. It is `dyn Any` because policies know nothing of the transport: the driver, which establishes it,
/// and the call, which sends on it, agree on its type.
pub type LiveConnection = Arc<dyn Any + Send + Sync>;

/// Holds a subchannel's live connections: usually one, several with gRFC A105. Written by the tree, read by calls.
///
/// A call downcasts a connection once per attempt.
#[derive(Default)]
pub struct ConnectionSlot {
    connections: ArcSwapOption<Connections>,
    calls: CallCounter,
    /// Receives the counts when the slot is dropped.
    heir: Option<Arc<CallCounter>>,
}

/// The connections at one moment, the oldest first.
#[derive(Clone)]
struct Connections {
    oldest: LiveConnection,
    /// Empty without an allocation.
    newer: Box<[LiveConnection]>,
}

impl ConnectionSlot {
    /// Creates a slot whose counts go to `heir` when it is dropped.
    #[must_use]
    pub fn with_heir(heir: Arc<CallCounter>) -> Self {
        Self { connections: ArcSwapOption::default(), calls: CallCounter::default(), heir: Some(heir) }
    }

    /// The calls that ended on connections of this slot.
    #[must_use]
    pub fn calls(&self) -> &CallCounter {
        &self.calls
    }

    /// The oldest connection; `None` if all were lost after the pick.
    #[must_use]
    pub fn load(&self) -> Option<LiveConnection> {
        self.read(|oldest, _| Some(Arc::clone(oldest)))
    }

    /// Reads the connections: the oldest, then the newer ones in order of age. `None` if there are none.
    pub fn read<T>(&self, read: impl FnOnce(&LiveConnection, &[LiveConnection]) -> Option<T>) -> Option<T> {
        self.connections.load().as_deref().and_then(|all| read(&all.oldest, &all.newer))
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connections.load().is_some()
    }

    /// Makes this the only connection, or removes all.
    pub fn store(&self, connection: Option<LiveConnection>) {
        self.set(connection, Box::default());
    }

    /// Adds a connection, as the newest.
    pub(crate) fn add(&self, connection: LiveConnection) {
        let all = self.read(|oldest, newer| {
            let newer = newer.iter().chain([&connection]).cloned().collect();
            Some((Arc::clone(oldest), newer))
        });
        match all {
            Some((oldest, newer)) => self.set(Some(oldest), newer),
            None => self.store(Some(connection)),
        }
    }

    /// Removes the connection at this position in order of age.
    pub(crate) fn remove(&self, position: usize) {
        let left = self.read(|oldest, newer| {
            let all = [oldest].into_iter().chain(newer).enumerate();
            let mut left =
                all.filter(|(at, _)| *at != position).map(|(_, connection)| Arc::clone(connection));
            Some((left.next(), left.collect()))
        });
        if let Some((oldest, newer)) = left {
            self.set(oldest, newer);
        }
    }

    fn set(&self, oldest: Option<LiveConnection>, newer: Box<[LiveConnection]>) {
        if oldest.is_some() {
            // Not by the first call: calls do not allocate.
            self.calls.prepare();
        }
        self.connections.store(oldest.map(|oldest| Arc::new(Connections { oldest, newer })));
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(heir) = &self.heir {
            heir.absorb(self.calls.counts());
        }
    }
}

impl fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_connected() { "ConnectionSlot(connected)" } else { "ConnectionSlot(empty)" })
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(slot: &ConnectionSlot) -> Vec<u32> {
        let number = |connection: &LiveConnection| *connection.downcast_ref::<u32>().unwrap();
        let read = |oldest: &_, newer: &[_]| Some([oldest].into_iter().chain(newer).map(number).collect());
        slot.read(read).unwrap_or_default()
    }

    #[test]
    fn a105_06_connections_are_in_order_of_age() {
        let slot = ConnectionSlot::default();
        slot.remove(0);
        assert!(numbers(&slot).is_empty());
        (1..=3u32).for_each(|number| slot.add(Arc::new(number)));
        assert_eq!(numbers(&slot), [1, 2, 3]);
        slot.remove(1);
        slot.add(Arc::new(4u32));
        assert_eq!(numbers(&slot), [1, 3, 4]);
        slot.remove(0);
        assert!(slot.load().is_some_and(|oldest| oldest.is::<u32>()));
        assert_eq!(numbers(&slot), [3, 4]);
        slot.store(None);
        assert!(!slot.is_connected());
    }
}
