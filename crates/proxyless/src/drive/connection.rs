//! One task per connection: connects, passes on its events, and waits for its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use proxyless_balancer::api::{CallCounter, Security};
use proxyless_balancer::tree::{
    AttemptId, ConnectionEvent, LoadEvent, LoadStreamId, Loss, StreamDemand, SubchannelId,
};
use proxyless_sans_io::SmallMap;
use proxyless_tls::TlsInfo;
use proxyless_transport::panics::catch;
use proxyless_transport::{Address, ConnectOptions, Connection, Lost, StreamQueue};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tracing::debug;

use super::descriptors::Descriptors;
use super::load_reports::{self, Origin};
use super::panics;
use super::security::ConnectionSecurity;
use crate::call::RequestBody;
use crate::targets;

/// A connection of the data plane.
pub(crate) type DataConnection = Connection<RequestBody>;

/// An event of a connection, from its task.
pub(crate) struct ConnectionUpdate {
    subchannel: SubchannelId,
    attempt: AttemptId,
    address: SocketAddr,
    kind: Kind,
}

impl ConnectionUpdate {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

enum Kind {
    Ready(Arc<DataConnection>, Option<Arc<TlsInfo>>),
    Ended(ConnectionEvent),
    Load(LoadStreamId, LoadEvent),
}

/// Sends the updates of one attempt; in any case its end, even if the user's connector panics.
struct Updates {
    driver: UnboundedSender<Box<ConnectionUpdate>>,
    subchannel: SubchannelId,
    attempt: AttemptId,
    address: SocketAddr,
    ended: bool,
}

impl Updates {
    fn send(&self, kind: Kind) {
        let Self { subchannel, attempt, address, .. } = *self;
        // The channel's driver ends before its connections only when everything is being dropped.
        let _ = self.driver.send(Box::new(ConnectionUpdate { subchannel, attempt, address, kind }));
    }

    fn ended(&mut self, event: ConnectionEvent) {
        self.ended = true;
        self.send(Kind::Ended(event));
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        // For an attempt that the core has cancelled, this update is ignored.
        if !self.ended {
            self.ended(ConnectionEvent::Failed("the task of the connection ended unexpectedly".into()));
        }
    }
}

/// Where a connection leads, and how.
pub(crate) struct Destination<'a> {
    pub(crate) address: SocketAddr,
    /// The TLS settings of the endpoint, if it has any.
    pub(crate) security: Option<&'a Security>,
    /// The proxy to connect through, if any.
    pub(crate) proxy: Option<SocketAddr>,
}

/// The connections of one channel, by the core's ids.
pub(crate) struct Connections {
    security: ConnectionSecurity,
    options: ConnectOptions,
    updates: UnboundedSender<Box<ConnectionUpdate>>,
    /// Boxed, because they are large and entries of the map move.
    tasks: SmallMap<(SubchannelId, AttemptId), Box<ConnectionTask>>,
    /// The queues of calls that wait for a stream, of the subchannels with connections or attempts.
    queues: SmallMap<SubchannelId, StreamQueue>,
    descriptors: Arc<Descriptors>,
}

/// The settings of one attempt.
pub(crate) struct ConnectSettings {
    pub(crate) timeout: Duration,
    pub(crate) keepalive_interval: Option<Duration>,
    /// The counter of the calls of this connection, if the subchannel has others.
    pub(crate) calls: Option<Arc<CallCounter>>,
}

/// An attempt and then its connection. Dropping it cancels the attempt, or closes the connection gracefully.
struct ConnectionTask {
    task: AbortHandle,
    connection: Option<Arc<DataConnection>>,
    /// TLS of the connection.
    tls: Option<Arc<TlsInfo>>,
    /// The stream of load reports, if the core wants them.
    load_stream: Option<(LoadStreamId, AbortHandle)>,
    address: SocketAddr,
    scheme: Scheme,
}

impl ConnectionTask {
    fn close_load_stream(&mut self) {
        if let Some((_, task)) = self.load_stream.take() {
            task.abort();
        }
    }
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.close_load_stream();
        self.task.abort();
        if let Some(connection) = &self.connection {
            connection.close_gracefully();
        }
    }
}

impl Connections {
    pub(crate) fn new(
        security: ConnectionSecurity,
        options: ConnectOptions,
        updates: UnboundedSender<Box<ConnectionUpdate>>,
    ) -> Self {
        let (tasks, queues) = (SmallMap::new(), SmallMap::new());
        Self { security, options, updates, tasks, queues, descriptors: Arc::default() }
    }

    pub(crate) fn connect(
        &mut self,
        subchannel: SubchannelId,
        attempt: AttemptId,
        to: Destination<'_>,
        settings: ConnectSettings,
    ) {
        let Destination { address, security, proxy } = to;
        let mut updates =
            Updates { driver: self.updates.clone(), subchannel, attempt, address, ended: false };
        let (connector, descriptors) =
            (self.security.connector(security, proxy), Arc::clone(&self.descriptors));
        let options = ConnectOptions {
            connect_timeout: settings.timeout,
            keepalive_interval: settings.keepalive_interval,
            queue: Some(self.queues.get_or_insert_with(subchannel, StreamQueue::default).clone()),
            tag: settings.calls.map(|calls| calls as _),
            ..self.options.clone()
        };
        let scheme = if security.is_some() { Scheme::HTTPS } else { self.security.fallback_scheme() };
        let task = tokio::spawn(async move {
            let address = Address::Tcp(address);
            // The connector may be the program's own.
            let connected = proxyless_transport::connect(connector.connector(), &address, &options);
            let connected = catch(connected).await;
            let live = match connected {
                Ok(Ok(live)) => Arc::new(live),
                Ok(Err(error)) => {
                    let reason = connector.reason(&error);
                    debug!(target: targets::SUBCHANNEL, %address, reason, "connection attempt failed");
                    if error.is_out_of_descriptors() {
                        descriptors.ran_out(&error);
                    }
                    return updates.ended(ConnectionEvent::Failed(reason));
                }
                Err(panicked) => {
                    updates.ended(ConnectionEvent::Failed(format!("the connector panicked: {panicked}")));
                    return panics::log(&format_args!("connection to {address}"), &panicked);
                }
            };
            let tls = connector.info().map(Arc::new);
            drop(connector);
            debug!(target: targets::SUBCHANNEL, %address, ?proxy, "connected");
            updates.send(Kind::Ready(Arc::clone(&live), tls));
            let lost = live.left_open().await;
            debug!(target: targets::SUBCHANNEL, %address, ?lost, "connection lost");
            let go_away = live.go_away();
            let too_many_pings = go_away.as_ref().is_some_and(|go_away| go_away.is_too_many_pings());
            let loss = |reason| Loss::new(reason, live.disconnect().to_string().into());
            updates.ended(match lost {
                Lost::GoAway(reason) | Lost::Closed(reason) if too_many_pings => {
                    ConnectionEvent::TooManyPings(loss(reason))
                }
                Lost::GoAway(reason) => ConnectionEvent::GoAway(loss(reason)),
                Lost::Closed(reason) => ConnectionEvent::Closed(loss(reason)),
            });
        });
        let (task, connection, tls, load_stream) = (task.abort_handle(), None, None, None);
        let task = ConnectionTask { task, connection, tls, load_stream, address, scheme };
        self.tasks.insert((subchannel, attempt), Box::new(task));
    }

    /// Reports the calls that wait for a stream of a subchannel's connections.
    pub(crate) fn report_demand(&mut self, subchannel: SubchannelId, demand: Arc<StreamDemand>) {
        let queue = self.queues.get_or_insert_with(subchannel, StreamQueue::default);
        queue.observe(move |count| demand.set_queued(count));
    }

    /// Cancels the attempt, or starts no new calls on its connection; those in flight finish.
    pub(crate) fn close(&mut self, subchannel: SubchannelId, attempt: AttemptId) {
        self.remove(subchannel, attempt);
    }

    fn remove(&mut self, subchannel: SubchannelId, attempt: AttemptId) -> Option<Box<ConnectionTask>> {
        let task = self.tasks.remove(&(subchannel, attempt));
        let next = self.tasks.next_from(&(subchannel, AttemptId(0)));
        if next.is_none_or(|((of, _), _)| *of != subchannel) {
            self.queues.remove(&subchannel);
        }
        task
    }

    /// Opens a stream of load reports on a connection, instead of the one that it has.
    pub(crate) fn open_load_stream(
        &mut self,
        subchannel: SubchannelId,
        attempt: AttemptId,
        stream: LoadStreamId,
        interval: Duration,
    ) {
        let Some(live) = self.tasks.get_mut(&(subchannel, attempt)) else { return };
        live.close_load_stream();
        let Some(connection) = live.connection.clone() else { return };
        let name = self.security.target_name.as_bytes();
        let authority = Authority::try_from(name).unwrap_or_else(|_| Authority::from_static("localhost"));
        let origin = Origin { authority, scheme: live.scheme.clone() };
        let (updates, address) = (self.updates.clone(), live.address);
        let task = tokio::spawn(async move {
            let send = |event| {
                let kind = Kind::Load(stream, event);
                // As with the updates of the connection.
                let _ = updates.send(Box::new(ConnectionUpdate { subchannel, attempt, address, kind }));
            };
            load_reports::run(&connection, origin, interval, send).await;
        });
        live.load_stream = Some((stream, task.abort_handle()));
    }

    /// Cancels a stream of load reports.
    pub(crate) fn close_load_stream(
        &mut self,
        subchannel: SubchannelId,
        attempt: AttemptId,
        stream: LoadStreamId,
    ) {
        if let Some(live) = self.tasks.get_mut(&(subchannel, attempt))
            && live.load_stream.as_ref().is_some_and(|(open, _)| *open == stream)
        {
            live.close_load_stream();
        }
    }

    /// The number of calls on a live connection.
    pub(crate) fn streams(&self, subchannel: SubchannelId, attempt: AttemptId) -> Option<u64> {
        let live = self.tasks.get(&(subchannel, attempt))?.connection.as_ref()?;
        u64::try_from(live.streams()).ok()
    }

    /// The MAX_CONCURRENT_STREAMS of a live connection's server, if it has set one.
    pub(crate) fn max_concurrent_streams(&self, subchannel: SubchannelId, attempt: AttemptId) -> Option<u32> {
        self.tasks.get(&(subchannel, attempt))?.connection.as_ref()?.max_concurrent_streams()
    }

    /// TLS of a live connection, if it has TLS.
    pub(crate) fn tls(&self, subchannel: SubchannelId, attempt: AttemptId) -> Option<&TlsInfo> {
        self.tasks.get(&(subchannel, attempt))?.tls.as_deref()
    }

    /// Handles an update. `None` if the core has already dropped that attempt.
    pub(crate) fn on_update(
        &mut self,
        update: ConnectionUpdate,
    ) -> Option<(SubchannelId, AttemptId, ConnectionEvent)> {
        let ConnectionUpdate { subchannel, attempt, kind, .. } = update;
        let key = (subchannel, attempt);
        let event = match kind {
            Kind::Ready(live, tls) => {
                let entry = self.tasks.get_mut(&key)?;
                (entry.connection, entry.tls) = (Some(Arc::clone(&live)), tls);
                ConnectionEvent::Ready(live)
            }
            Kind::Ended(event) => {
                // It ended by itself: its last calls may still be running.
                self.remove(subchannel, attempt)?.connection = None;
                event
            }
            Kind::Load(stream, event) => ConnectionEvent::Load(stream, event),
        };
        Some((subchannel, attempt, event))
    }
}

#[cfg(test)]
mod tests {
    use proxyless_balancer::tree::SubchannelId;
    use proxyless_transport::{BoxedIo, Connecting, Connector};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::time::Instant;

    use super::*;
    use crate::credentials::XdsCredentials;

    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: u8 = 6;

    /// Opens pipes and returns their other ends: without a socket, paused time advances only when all tasks wait.
    struct Pipes(UnboundedSender<DuplexStream>);

    impl Connector for Pipes {
        fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
            let (client, server) = duplex(1 << 16);
            self.0.send(server).unwrap();
            Box::pin(async move { Ok(BoxedIo::new(client)) })
        }
    }

    /// Reads up to the first PING.
    async fn read_ping(server: &mut DuplexStream) {
        server.read_exact(&mut [0; 24]).await.unwrap();
        loop {
            let mut header = [0; 9];
            server.read_exact(&mut header).await.unwrap();
            let [a, b, c, kind, ..] = header;
            server.read_exact(&mut vec![0; u32::from_be_bytes([0, a, b, c]) as usize]).await.unwrap();
            if kind == PING {
                return;
            }
        }
    }

    fn connections()
    -> (Connections, UnboundedReceiver<Box<ConnectionUpdate>>, UnboundedReceiver<DuplexStream>) {
        let (updates, incoming) = unbounded_channel();
        let (pipes, servers) = unbounded_channel();
        let options = ConnectOptions { keepalive_while_idle: true, ..ConnectOptions::default() };
        let security = ConnectionSecurity {
            credentials: XdsCredentials::Plaintext,
            target_name: "".into(),
            tls: Err("".into()),
            connector: Arc::new(Pipes(pipes)),
        };
        (Connections::new(security, options, updates), incoming, servers)
    }

    async fn connect(
        connections: &mut Connections,
        servers: &mut UnboundedReceiver<DuplexStream>,
        keepalive_interval: Option<Duration>,
    ) -> DuplexStream {
        let (address, timeout) = ("192.0.2.1:80".parse().unwrap(), Duration::from_secs(20));
        let to = Destination { address, security: None, proxy: None };
        let settings = ConnectSettings { timeout, keepalive_interval, calls: None };
        connections.connect(SubchannelId(1), AttemptId(1), to, settings);
        let mut server = servers.recv().await.unwrap();
        server.write_all(&SETTINGS).await.unwrap();
        server
    }

    #[tokio::test(start_paused = true)]
    async fn a8_the_keepalive_interval_is_that_of_the_core() {
        for seconds in [10, 320] {
            let (mut connections, _incoming, mut servers) = connections();
            let interval = Some(Duration::from_secs(seconds));
            let mut server = connect(&mut connections, &mut servers, interval).await;
            let begin = Instant::now();
            read_ping(&mut server).await;
            assert_eq!(begin.elapsed().as_secs(), seconds);
        }
    }

    /// The end of a connection that the server ends by GOAWAY with this code and debug data.
    async fn end_after(code: u8, debug_data: &[u8]) -> ConnectionEvent {
        let (mut connections, mut incoming, mut servers) = connections();
        let mut server = connect(&mut connections, &mut servers, None).await;
        // Last stream 0.
        let length = u8::try_from(8 + debug_data.len()).unwrap();
        let go_away = [&[0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, code], debug_data].concat();
        server.write_all(&go_away).await.unwrap();
        let ready = incoming.recv().await.unwrap();
        connections.on_update(*ready).unwrap();
        let ended = incoming.recv().await.unwrap();
        connections.on_update(*ended).unwrap().2
    }

    #[tokio::test(start_paused = true)]
    async fn a8_the_core_learns_of_too_many_pings() {
        const ENHANCE_YOUR_CALM: u8 = 11;
        let end = end_after(ENHANCE_YOUR_CALM, b"too_many_pings").await;
        assert!(matches!(end, ConnectionEvent::TooManyPings(_)), "{end:?}");
        for (code, debug_data) in [(ENHANCE_YOUR_CALM, &b"too many calls"[..]), (0, b"too_many_pings")] {
            let end = end_after(code, debug_data).await;
            let is_other = matches!(end, ConnectionEvent::GoAway(_) | ConnectionEvent::Closed(_));
            assert!(is_other, "{end:?}");
        }
    }
}
