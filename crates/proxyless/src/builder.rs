//! Options of a channel.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use proxyless_balancer::tree::TreeConfig;
use proxyless_mesh::channel_core::ChannelConfig;
use proxyless_mesh::dns::{DnsConfig, DnsRefresh};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_transport::dns::{Resolve, SystemResolver};
use proxyless_transport::{ConnectOptions, Connector, TcpConnector};
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::client::NackMode;
use proxyless_xds::{Gates, Limits, XdsTarget};
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;

use crate::bootstrap::bootstrap_from_env;
use crate::call::{CallSettings, PolicyRetries, RetryOptions};
use crate::channel::{Shared, XdsChannel};
use crate::client_pool::{ClientKey, ClientPool, ClientSharing, ClientSource};
use crate::clock;
use crate::drive::supervisor::{Parts, Supervisor};
use crate::error::ConnectError;
use crate::snapshot::Published;

/// Builds an [`XdsChannel`] with options.
///
/// The limit of 1,024 RPCs in flight per cluster is not an option: the control plane sets it, see [`XdsChannel`].
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use proxyless::{Bootstrap, XdsChannel};
///
/// let bootstrap = Bootstrap::from_json(r#"{
///     "xds_servers": [{ "server_uri": "127.0.0.1:18000", "channel_creds": [{ "type": "insecure" }] }],
///     "node": { "id": "checkout-7" }
/// }"#)?;
/// let channel = XdsChannel::builder("xds:///greeter.example:50051").bootstrap(bootstrap).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct XdsChannelBuilder {
    target: String,
    bootstrap: Option<Bootstrap>,
    sharing: ClientSharing,
    pool: Option<ClientPool>,
    nack_mode: NackMode,
    gates: Option<Gates>,
    limits: Limits,
    resource_timeout: Option<Duration>,
    failover_timeout: Duration,
    connect_timeout: Duration,
    keepalive: Option<(Duration, Duration)>,
    idle_timeout: Option<Duration>,
    connector: Option<Arc<dyn Connector>>,
    dns: DnsConfig,
    resolver: Arc<dyn Resolve>,
    retries: RetryOptions,
    write_timeout: Option<Duration>,
    max_header_list_size: u32,
    initial_stream_window: u32,
}

impl XdsChannelBuilder {
    pub(crate) fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            bootstrap: None,
            sharing: ClientSharing::default(),
            pool: None,
            nack_mode: NackMode::default(),
            gates: None,
            limits: Limits::default(),
            resource_timeout: None,
            failover_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(20),
            keepalive: None,
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            connector: None,
            dns: DnsConfig::default(),
            resolver: Arc::new(SystemResolver::new()),
            retries: RetryOptions::default(),
            write_timeout: ConnectOptions::default().write_timeout,
            max_header_list_size: ConnectOptions::default().max_header_list_size,
            initial_stream_window: ConnectOptions::default().initial_stream_window,
        }
    }

    /// Sets the bootstrap, instead of the one from the environment.
    pub fn bootstrap(mut self, bootstrap: Bootstrap) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// Sets whether this channel shares its xDS client with others; by default with all that have the same bootstrap.
    pub fn client_sharing(mut self, sharing: ClientSharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Sets the pool of shared clients; by default that of the process.
    pub fn client_pool(mut self, pool: ClientPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Sets the treatment of valid resources in a response that also contains invalid ones; by default they are used
    /// (gRFC A46).
    pub fn nack_mode(mut self, mode: NackMode) -> Self {
        self.nack_mode = mode;
        self
    }

    /// Sets the feature gates; by default those of the environment.
    pub fn gates(mut self, gates: Gates) -> Self {
        self.gates = Some(gates);
        self
    }

    /// Sets the limits on what the management server may send; the defaults are far above the needs of any mesh.
    ///
    /// Channels with different limits do not share a client.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the time after which a requested resource counts as missing (gRFC A57); 15 seconds by default.
    pub fn resource_timeout(mut self, timeout: Duration) -> Self {
        self.resource_timeout = Some(timeout);
        self
    }

    /// Sets the time for a priority to connect before the next one is tried (gRFC A56); 10 seconds by default.
    pub fn failover_timeout(mut self, timeout: Duration) -> Self {
        self.failover_timeout = timeout;
        self
    }

    /// Sets the minimum time limit of a connection attempt; 20 seconds by default. After consecutive failures the limit
    /// is the backoff, at most two minutes.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Probes connections with HTTP/2 PINGs every `interval` while calls run, and drops one that does not answer within
    /// `timeout`. Off by default: servers may refuse probes that they find too frequent. One that says so
    /// (`too_many_pings`) has the channel double the interval (gRFC A8), up to ten minutes.
    /// An interval below ten seconds is taken for ten.
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        // A8: shorter intervals could overload a server with many clients.
        const SHORTEST: Duration = Duration::from_secs(10);
        self.keepalive = Some((interval.max(SHORTEST), timeout));
        self
    }

    /// Sets the time without RPCs after which the channel goes IDLE: it ends its watches, connections and DNS queries,
    /// and with the last channel of a bootstrap the stream to the management server. RPCs in flight, including streams,
    /// keep it from going IDLE. The next RPC (or [`XdsChannel::ready`]) makes it connect again and waits for fresh
    /// configuration, like the first one.
    ///
    /// 30 minutes by default, as in gRPC's other libraries; `None` keeps the channel connected for ever. It takes
    /// effect between one and two timeouts after the last RPC. Timeouts below 100 ms are clamped to 100 ms.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use proxyless::XdsChannel;
    /// let channel = XdsChannel::builder("xds:///batch.example").idle_timeout(Duration::from_secs(60)).build();
    /// let always = XdsChannel::builder("xds:///greeter.example").idle_timeout(None).build();
    /// ```
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        const SHORTEST: Duration = Duration::from_millis(100);
        self.idle_timeout = timeout.into().map(|timeout| timeout.max(SHORTEST));
        self
    }

    /// Sets the connector that opens byte streams to backends; plain TCP by default, which closes a connection when
    /// sent data stays unacknowledged for the keepalive timeout (gRFC A18), or without keepalive for 20 seconds.
    /// [`TcpConnector::user_timeout`] changes that time.
    pub fn connector(mut self, connector: impl Connector + 'static) -> Self {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Sets the resolver for the host names of LOGICAL_DNS clusters; the system's DNS by default.
    pub fn dns_resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// Sets when host names are resolved again although no connection failed; by default never, as in gRPC's other
    /// libraries.
    pub fn dns_refresh(mut self, refresh: DnsRefresh) -> Self {
        self.dns.refresh = refresh;
        self
    }

    /// Sets the minimum time between two queries of a host name because of failed connections; 30 seconds by default.
    pub fn dns_min_interval(mut self, interval: Duration) -> Self {
        self.dns.min_resolution_interval = interval;
        self
    }

    /// Ignores the retry policies of routes (gRFC A44), for applications that retry by themselves. Requests that no
    /// server has processed are still retried transparently.
    pub fn disable_retries(mut self) -> Self {
        self.retries.policy_retries = PolicyRetries::Disabled;
        self
    }

    /// Sets how many bytes of a request are buffered for retries until its response starts; 256 KiB by default.
    ///
    /// Once more than this has been sent of a request, a route's policy does not retry it. A streaming request is then
    /// not retried transparently either if its connection is lost before a server has processed it; a unary one always
    /// is, as keeping it costs nothing.
    pub fn retry_buffer(mut self, bytes: usize) -> Self {
        self.retries.buffer = bytes;
        self
    }

    /// Throttles the retries of route policies (gRFC A6, `retryThrottling`); off by default, as xDS has no such
    /// setting.
    ///
    /// The channel has `max_tokens` tokens (1 to 1,000). An attempt that fails with a retryable code takes one token, a
    /// call that succeeds adds `token_ratio` of one (at least 0.001), and there are no retries while half of the tokens
    /// or fewer are left.
    pub fn retry_throttling(mut self, max_tokens: u32, token_ratio: f64) -> Self {
        self.retries.throttling = Some((max_tokens, token_ratio));
        self
    }

    /// Sets the time after which the connection to a backend is closed if its socket accepts no writes; 20 seconds by
    /// default, at least 100 milliseconds, and `None` for the system's limit. RPCs that were not sent move to another
    /// connection. Connections with nothing to send are not affected.
    pub fn write_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        const SHORTEST: Duration = Duration::from_millis(100);
        self.write_timeout = timeout.into().map(|timeout| timeout.max(SHORTEST));
        self
    }

    /// How large the headers of a response may be, and how large its trailers (names, values and 32 bytes for each);
    /// 16 KiB by default. A response with more fails with RESOURCE_EXHAUSTED. What is very much larger ends the connection,
    /// and the RPCs on it are UNAVAILABLE.
    pub fn max_header_list_size(mut self, bytes: u32) -> Self {
        self.max_header_list_size = bytes;
        self
    }

    /// How many bytes of a response are taken from a backend before the caller reads them; 1 MiB by default, at least
    /// 65,535. This bounds what an RPC buffers whose caller reads slowly or not at all (HTTP/2 calls it the initial window
    /// of a stream). Messages that are longer still arrive, in pieces.
    ///
    /// Two other bounds are not the channel's: tonic's clients refuse messages of more than 4 MiB
    /// (`max_decoding_message_size` of a generated client, which also bounds what a compressed message may grow to), and
    /// requests are kept for retries as far as [`retry_buffer`](Self::retry_buffer) says.
    ///
    /// A backend that fills the window with messages of a few bytes makes the client hold some hundred bytes for each: about
    /// fifty times as much, at worst.
    pub fn initial_stream_window_size(mut self, bytes: u32) -> Self {
        // RFC 9113, sections 6.9.1 and 6.9.2: a server may send as much as the former before it has read our SETTINGS.
        const LEAST: u32 = 65_535;
        const MOST: u32 = (1 << 31) - 1;
        self.initial_stream_window = bytes.clamp(LEAST, MOST);
        self
    }

    /// Builds the channel. It stays IDLE until its first RPC.
    ///
    /// # Errors
    /// As [`XdsChannel::connect`].
    pub fn build(self) -> Result<XdsChannel, ConnectError> {
        let target = XdsTarget::parse(&self.target)?;
        let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
        let bootstrap = match self.bootstrap {
            Some(bootstrap) => bootstrap,
            None => bootstrap_from_env()?,
        };
        let gates = self.gates.unwrap_or_else(|| Gates::from_variables(|name| std::env::var(name).ok()));
        let name = Arc::clone(target.name());
        let uri: Arc<str> = Arc::from(self.target.as_str());

        let (server, node) = (Arc::from(bootstrap.server().uri.as_str()), Arc::from(bootstrap.node_id()));

        let config = ChannelConfig {
            listener_name: Arc::clone(&name),
            authority: Arc::clone(&name),
            tree: TreeConfig {
                connect_timeout: self.connect_timeout,
                keepalive_interval: self.keepalive.map(|(interval, _)| interval),
                ..TreeConfig::default()
            },
            failover_timeout: self.failover_timeout,
            dns: self.dns,
            gates,
            circuits: CircuitRegistry::global(),
            idle_timeout: self.idle_timeout,
            // Each driver has its own.
            seed: 0,
        };
        let pool = self.pool.unwrap_or_else(ClientPool::global);
        let clients = ClientSource {
            pool: pool.clone(),
            key: ClientKey {
                bootstrap: Arc::new(bootstrap),
                target: (self.sharing == ClientSharing::PerTarget).then(|| Arc::clone(&uri)),
                nack_mode: self.nack_mode,
                gates,
                limits: self.limits,
                resource_timeout: self.resource_timeout,
            },
        };
        let mut options = ConnectOptions::default();
        if let Some((interval, timeout)) = self.keepalive {
            options.keepalive_interval = Some(interval);
            options.keepalive_timeout = timeout;
        }
        options.write_timeout = self.write_timeout;
        options.max_header_list_size = self.max_header_list_size;
        options.initial_stream_window = self.initial_stream_window;
        let connector = self.connector.unwrap_or_else(|| Arc::new(TcpConnector::for_options(&options)));
        let (commands, command_inbox) = unbounded_channel();
        let published = Arc::new(Published::new());
        let supervisor = Supervisor::new(Parts {
            id: clock::next_id(),
            target: Arc::clone(&uri),
            config,
            published: Arc::clone(&published),
            clients,
            connector,
            options,
            resolver: self.resolver,
        });
        pool.list(&commands);
        runtime.spawn(supervisor.run(command_inbox));
        Ok(XdsChannel::new(Shared {
            target: uri,
            authority: Authority::try_from(&*name).ok(),
            server,
            node,
            published,
            channel_id: clock::seed(),
            commands,
            calls: CallSettings::new(runtime, self.retries, self.max_header_list_size),
        }))
    }
}

impl fmt::Debug for XdsChannelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdsChannelBuilder").field("target", &self.target).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a8_keepalive_interval_is_ten_seconds_at_least() {
        let kept = |seconds| {
            let timeout = Duration::from_secs(1);
            XdsChannelBuilder::new("xds:///x").keepalive(Duration::from_secs(seconds), timeout).keepalive
        };
        assert_eq!(kept(1), Some((Duration::from_secs(10), Duration::from_secs(1))));
        assert_eq!(kept(11), Some((Duration::from_secs(11), Duration::from_secs(1))));
    }
}
