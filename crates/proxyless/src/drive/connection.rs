//! One task per connection: connects, reports READY, watches for its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proxyless_balancer::tree::{ConnectionEvent, ConnectionId};

use proxyless_transport::{Address, ConnectOptions, Connection, Connector, Lost};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::call::RequestBody;

/// A connection of the data plane.
pub(crate) type DataConnection = Connection<RequestBody>;

/// What happened to a connection.
pub(crate) struct Report {
    connection: ConnectionId,
    attempt: u64,
    address: SocketAddr,
    kind: Kind,
}

impl Report {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

enum Kind {
    Ready(Arc<DataConnection>),
    Ended(ConnectionEvent),
}

/// Reports for one attempt; its end in any case, also if the user's connector panics.
struct Reporter {
    reports: UnboundedSender<Report>,
    connection: ConnectionId,
    attempt: u64,
    address: SocketAddr,
    ended: bool,
}

impl Reporter {
    fn report(&self, kind: Kind) {
        let Self { connection, attempt, address, .. } = *self;
        // The channel's driver ends before its connections only when everything is being dropped.
        let _ = self.reports.send(Report { connection, attempt, address, kind });
    }

    fn ended(&mut self, event: ConnectionEvent) {
        self.ended = true;
        self.report(Kind::Ended(event));
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // An attempt that the core has given up is not known any more, and this report passed over.
        if !self.ended {
            self.ended(ConnectionEvent::Failed("the task of the connection ended before it".into()));
        }
    }
}

/// The connections of one channel, by what the core calls them.
pub(crate) struct Connections {
    connector: Arc<dyn Connector>,
    options: ConnectOptions,
    reports: UnboundedSender<Report>,
    live: BTreeMap<(ConnectionId, u64), Live>,
}

struct Live {
    task: AbortHandle,
    connection: Option<Arc<DataConnection>>,
}

impl Connections {
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        options: ConnectOptions,
        reports: UnboundedSender<Report>,
    ) -> Self {
        Self { connector, options, reports, live: BTreeMap::new() }
    }

    pub(crate) fn connect(
        &mut self,
        connection: ConnectionId,
        attempt: u64,
        address: SocketAddr,
        timeout: Duration,
    ) {
        let mut reporter =
            Reporter { reports: self.reports.clone(), connection, attempt, address, ended: false };
        let connector = Arc::clone(&self.connector);
        let options = ConnectOptions { connect_timeout: timeout, ..self.options.clone() };
        let task = tokio::spawn(async move {
            let address = Address::Tcp(address);
            let live = match proxyless_transport::connect_with(&*connector, &address, &options).await {
                Ok(live) => Arc::new(live),
                Err(error) => {
                    debug!(target: "subchannel", %address, %error, "connection attempt failed");
                    return reporter.ended(ConnectionEvent::Failed(error.reason()));
                }
            };
            debug!(target: "subchannel", %address, "connected");
            reporter.report(Kind::Ready(Arc::clone(&live)));
            let lost = live.left_open().await;
            debug!(target: "subchannel", %address, ?lost, "connection lost");
            reporter.ended(match lost {
                Lost::GoAway(reason) => ConnectionEvent::GoAway(reason),
                Lost::Closed(reason) => ConnectionEvent::Closed(reason),
            });
        });
        self.live.insert((connection, attempt), Live { task: task.abort_handle(), connection: None });
    }

    pub(crate) fn cancel(&mut self, connection: ConnectionId, attempt: u64) {
        if let Some(live) = self.live.remove(&(connection, attempt)) {
            live.task.abort();
        }
    }

    /// No new calls; those in flight finish.
    pub(crate) fn close_gracefully(&mut self, connection: ConnectionId, attempt: u64) {
        if let Some(live) = self.live.remove(&(connection, attempt)) {
            live.task.abort();
            if let Some(connection) = live.connection {
                connection.close_gracefully();
            }
        }
    }

    /// How many calls are on a live connection.
    pub(crate) fn streams(&self, connection: ConnectionId, attempt: u64) -> Option<u64> {
        let live = self.live.get(&(connection, attempt))?.connection.as_ref()?;
        u64::try_from(live.streams()).ok()
    }

    /// Takes a report in. `None` if the core has already let go of that attempt.
    pub(crate) fn on_report(&mut self, report: Report) -> Option<(ConnectionId, u64, ConnectionEvent)> {
        let Report { connection, attempt, kind, .. } = report;
        let key = (connection, attempt);
        let event = match kind {
            Kind::Ready(live) => {
                self.live.get_mut(&key)?.connection = Some(Arc::clone(&live));
                ConnectionEvent::Ready(live)
            }
            Kind::Ended(event) => {
                self.live.remove(&key)?;
                event
            }
        };
        Some((connection, attempt, event))
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for live in self.live.values() {
            live.task.abort();
            if let Some(connection) = &live.connection {
                connection.close_gracefully();
            }
        }
    }
}
