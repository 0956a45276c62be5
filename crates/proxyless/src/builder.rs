//! Options of a channel.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use proxyless_balancer::policies::priority::DEFAULT_FAILOVER_TIMEOUT;
use proxyless_balancer::tree::TreeConfig;
use proxyless_mesh::channel_core::ChannelConfig;
use proxyless_mesh::dns::{DnsConfig, DnsRefresh};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_mesh::policies::custom::Registry;
use proxyless_mesh::route_table::ChannelHash;
use proxyless_sans_io::BackoffConfig;
use proxyless_sans_io::metrics::{Meter, Recorder};
use proxyless_transport::dns::Resolve;
use proxyless_transport::{ConnectOptions, Connector, TcpConnector};
use proxyless_xds::bootstrap::{Bootstrap, BootstrapOptions};
use proxyless_xds::client::NackMode;
use proxyless_xds::{Gates, Limits, XdsTarget};
use tokio::runtime::Handle;

use crate::call::{CallSettings, PolicyRetries, RetryOptions};
use crate::channel::{Shared, XdsChannel};
use crate::client_pool::{ClientKey, ClientPool, ClientSharing, ClientSource};
use crate::clock;
use crate::credentials::XdsCredentials;
use crate::dns::default_resolver;
use crate::drive::security::ConnectionSecurity;
use crate::drive::supervisor::{Parts, spawn};
use crate::error::BuildError;
use crate::snapshot::Published;
use crate::telemetry::{self, ChannelTelemetry, Tracer};

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
    policies: Registry,
    resource_timeout: Option<Duration>,
    failover_timeout: Duration,
    connect_timeout: Duration,
    connect_backoff: BackoffConfig,
    idle_timeout: Option<Duration>,
    connector: Option<Arc<dyn Connector>>,
    credentials: XdsCredentials,
    dns: DnsConfig,
    /// `None`: the default resolver.
    resolver: Option<Arc<dyn Resolve>>,
    retries: RetryOptions,
    connection: ConnectOptions,
    connections_per_subchannel_cap: u32,
    recorders: Vec<Arc<dyn Recorder>>,
    tracers: Vec<Arc<dyn Tracer>>,
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
            policies: Registry::new(),
            resource_timeout: None,
            failover_timeout: DEFAULT_FAILOVER_TIMEOUT,
            connect_timeout: TreeConfig::default().connect_timeout,
            connect_backoff: TreeConfig::default().backoff,
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            connector: None,
            credentials: XdsCredentials::default(),
            dns: DnsConfig::default(),
            resolver: None,
            retries: RetryOptions::default(),
            connection: ConnectOptions::default(),
            connections_per_subchannel_cap: TreeConfig::default().connections_per_subchannel_cap,
            recorders: Vec::new(),
            tracers: Vec::new(),
        }
    }

    /// Sets the bootstrap, instead of the one from the environment.
    pub fn bootstrap(mut self, bootstrap: Bootstrap) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// Sets whether this channel shares its xDS client with others; by default with all that have the same bootstrap,
    /// unless that has several servers to fall back to.
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

    /// Sets the feature gates; by default those of the environment ([`Gates::from_env`]), whereas all gates of
    /// [`Gates::default`] are closed.
    ///
    /// ```
    /// let mut gates = proxyless::Gates::default();
    /// gates.authority_rewrite = true;
    /// ```
    pub fn gates(mut self, gates: Gates) -> Self {
        self.gates = Some(gates);
        self
    }

    /// Sets the limits of responses from the management server; the defaults are far above the needs of any mesh.
    ///
    /// Channels with different limits do not share a client.
    ///
    /// ```
    /// let mut limits = proxyless::Limits::default();
    /// limits.message_bytes = 16 << 20;
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the load balancing policies of the program, which clusters may name (gRFC A52); see [`policy`](crate::policy).
    ///
    /// Channels share an xDS client only if they have clones of the same registry: the client accepts and rejects
    /// Clusters by it. Make one registry for the process.
    pub fn policies(mut self, policies: Registry) -> Self {
        self.policies = policies;
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
    /// is the [backoff](Self::connect_backoff), if that is longer.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time between attempts to connect to an endpoint that fail: `initial` at first, 1.6 times as long after each
    /// failure, at most `max`, always plus or minus 20 %. 1 second and 2 minutes by default, as in gRPC's other libraries
    /// (C-core has the same settings as `grpc.initial_reconnect_backoff_ms` and `grpc.max_reconnect_backoff_ms`).
    ///
    /// While a lower priority serves, a higher one goes on connecting (gRFC A56), so this is also the time in which a
    /// recovered primary is noticed: at most `max`. A small `max` costs a connection attempt per client, endpoint and
    /// `max`; [`XdsChannel::reset_connect_backoff`] costs nothing where the application learns of the recovery by itself.
    /// Times below 100 ms are clamped to 100 ms.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use proxyless::XdsChannel;
    /// // A primary that was down for an hour gets its traffic back within 10 seconds (plus 20 %).
    /// let (initial, max) = (Duration::from_secs(1), Duration::from_secs(10));
    /// let channel = XdsChannel::builder("xds:///greeter.example").connect_backoff(initial, max).build();
    /// ```
    pub fn connect_backoff(mut self, initial: Duration, max: Duration) -> Self {
        const SHORTEST: Duration = Duration::from_millis(100);
        let initial = initial.max(SHORTEST);
        self.connect_backoff = BackoffConfig { initial, max: max.max(initial), ..BackoffConfig::default() };
        self
    }

    /// Enables keepalive: connections with RPCs in flight are probed with an HTTP/2 PING every `interval`, and closed
    /// if the answer takes longer than the [`keepalive_timeout`](Self::keepalive_timeout). Off by default: servers may
    /// refuse frequent probes. On GOAWAY(too_many_pings) the interval is doubled, up to ten minutes. Intervals below
    /// 10 s are clamped to 10 s (gRFC A8).
    pub fn keepalive_interval(mut self, interval: Duration) -> Self {
        // A8: shorter intervals could overload a server with many clients.
        const SHORTEST: Duration = Duration::from_secs(10);
        self.connection.keepalive_interval = Some(interval.max(SHORTEST));
        self
    }

    /// Sets the time limit for the answer to a keepalive PING; 20 seconds by default. It has no effect without a
    /// [`keepalive_interval`](Self::keepalive_interval).
    pub fn keepalive_timeout(mut self, timeout: Duration) -> Self {
        self.connection.keepalive_timeout = timeout;
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
    /// [`TcpConnector::user_timeout`] changes that time. TLS runs on top of it, unless the
    /// [credentials](Self::credentials) are plaintext.
    pub fn connector(mut self, connector: impl Connector + 'static) -> Self {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Sets the source of the TLS settings of connections to backends (gRFC A29): by default the control plane, with TLS
    /// for the clusters that have TLS settings and plaintext for all others.
    ///
    /// With the default, a control plane that takes the TLS settings of a cluster away makes its connections plaintext.
    /// A program that must never send plaintext says so:
    ///
    /// ```no_run
    /// # use proxyless::{Fallback, XdsChannel, XdsCredentials};
    /// let channel = XdsChannel::builder("xds:///greeter.example")
    ///     .credentials(XdsCredentials::Xds(Fallback::None))
    ///     .build();
    /// ```
    ///
    /// New settings open new connections; those with the old ones take no new RPCs and close when their RPCs have ended.
    /// RPCs wait for the new connections. Files that are rotated count for new connections only.
    pub fn credentials(mut self, credentials: XdsCredentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// Sets the resolver for the host names of LOGICAL_DNS clusters; by default the system's DNS, if the feature `dns`
    /// is enabled.
    pub fn dns_resolver(mut self, resolver: impl Resolve) -> Self {
        self.resolver = Some(Arc::new(resolver));
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
        self.connection.write_timeout = timeout.into().map(|timeout| timeout.max(SHORTEST));
        self
    }

    /// Sets the maximum size of a response's headers, and of its trailers (names, values and 32 bytes for each); 16 KiB
    /// by default. A response that exceeds it fails with RESOURCE_EXHAUSTED. One that exceeds it by far ends the
    /// connection, and the RPCs on it fail with UNAVAILABLE.
    pub fn max_header_list_size(mut self, bytes: u32) -> Self {
        self.connection.max_header_list_size = bytes;
        self
    }

    /// Sets how many bytes of a response are buffered until the caller reads them (the HTTP/2 initial window of a
    /// stream); 1 MiB by default, at least 65,535. Longer messages arrive in pieces. The window grows on long fast links,
    /// see [`max_stream_window_size`](Self::max_stream_window_size).
    ///
    /// Two other bounds are not the channel's: generated clients refuse messages of more than 4 MiB, before and after
    /// decompression (`max_decoding_message_size`), and [`retry_buffer`](Self::retry_buffer) bounds the requests kept
    /// for retries.
    ///
    /// Each buffered message takes some hundred bytes in addition: a backend that fills the window with messages of a
    /// few bytes makes the client hold up to fifty times the window.
    pub fn initial_stream_window_size(mut self, bytes: u32) -> Self {
        // RFC 9113, sections 6.9.1 and 6.9.2: a server may send as much as the former before it has read our SETTINGS.
        const LEAST: u32 = 65_535;
        const MOST: u32 = (1 << 31) - 1;
        self.connection.initial_stream_window = bytes.clamp(LEAST, MOST);
        self
    }

    /// Sets the size up to which the windows of a connection's streams grow; 16 MiB by default, as in gRPC's other
    /// libraries. A stream gets at most one window in each round trip, so 16 MiB are 2.7 Gbit/s on a link with 50 ms.
    ///
    /// They grow only if a reader that is never behind receives (nearly) a window in each round trip. The round-trip
    /// time is that of the SETTINGS of HTTP/2, so that no PINGs are needed, which some servers count as abuse. The size
    /// of [`initial_stream_window_size`](Self::initial_stream_window_size) keeps the windows as they are.
    ///
    /// Large windows are for large messages: a connection ends when its callers leave more DATA frames of a few bytes unread
    /// than 16 initial windows hold, 3.4 million by default.
    pub fn max_stream_window_size(mut self, bytes: u32) -> Self {
        // RFC 9113, section 6.9.1.
        const MOST: u32 = (1 << 31) - 1;
        self.connection.max_stream_window = bytes.min(MOST);
        self
    }

    /// Sets the cap on the number of connections to one address, whatever the configuration says: 10 by default, and
    /// never less than one. A channel opens more than one only if the Cluster resource allows it and a server's
    /// MAX_CONCURRENT_STREAMS is used up (gRFC A105, behind [`Gates::connection_scaling`]).
    pub fn connections_per_subchannel_cap(mut self, cap: u32) -> Self {
        self.connections_per_subchannel_cap = cap.max(1);
        self
    }

    /// Records the metrics of this channel, beside the [installed](telemetry::install) recorders.
    pub fn recorder(mut self, recorder: impl Recorder + 'static) -> Self {
        self.recorders.push(Arc::new(recorder));
        self
    }

    /// Traces the RPCs of this channel, beside the [installed](telemetry::install_tracer) tracers.
    pub fn tracer(mut self, tracer: impl Tracer + 'static) -> Self {
        self.tracers.push(Arc::new(tracer));
        self
    }

    /// Builds the channel. It connects with its first RPC, or with [`XdsChannel::ready`].
    ///
    /// # Errors
    /// As [`XdsChannel::new`].
    pub fn build(self) -> Result<XdsChannel, BuildError> {
        let parsed = XdsTarget::parse(&self.target)?;
        self.policies.check()?;
        let name = Arc::clone(parsed.name());
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let gates = self.gates.unwrap_or_else(Gates::from_env);
        let bootstrap = match self.bootstrap {
            Some(ref bootstrap) => bootstrap.clone(),
            None => Bootstrap::from_env_with(&BootstrapOptions::default().with_gates(gates))?,
        };
        let listener_name = parsed.listener_name(&bootstrap)?;
        let target: Arc<str> = Arc::from(self.target.as_str());
        let published = Arc::new(Published::new());
        let authority = parsed.authority().and_then(|authority| bootstrap.authorities().get(&**authority));
        let server = authority.and_then(|authority| authority.servers.first()).unwrap_or(bootstrap.server());
        let (server, node) = (Arc::from(server.uri.as_str()), Arc::from(bootstrap.node_id()));
        let meter = self.meter(&parsed);
        let clients = self.client_source(&target, &name, bootstrap, gates, &meter);
        let security = self.connection_security(&name, &clients);
        let hash = ChannelHash(clock::seed());
        let tracers =
            telemetry::installed_tracers().into_iter().chain(self.tracers.iter().cloned()).collect();
        let commands = spawn(
            Parts {
                id: clock::next_id(),
                target: Arc::clone(&target),
                config: self.channel_config(&name, listener_name, gates, &meter),
                published: Arc::clone(&published),
                clients,
                security,
                options: self.connection.clone(),
                resolver: self.resolver.unwrap_or_else(default_resolver),
                hash,
                policy_retries: self.retries.policy_retries,
            },
            &runtime,
        );
        Ok(XdsChannel::from_shared(Shared {
            target,
            authority: Authority::try_from(&*name).ok(),
            server,
            node,
            published,
            hash,
            commands,
            calls: CallSettings::new(
                runtime,
                self.retries,
                self.connection.max_header_list_size,
                &self.credentials,
            ),
            telemetry: ChannelTelemetry::new(parsed.to_string().into(), &meter, tracers),
        }))
    }

    fn meter(&self, target: &XdsTarget) -> Meter {
        // A66: the label is the canonical target.
        let target: Arc<str> = target.to_string().into();
        let mut recorders = telemetry::installed();
        recorders.extend(self.recorders.iter().cloned());
        // A79: recorders choose their channels.
        recorders.retain(|recorder| recorder.records_channel(&target));
        Meter::new(target, recorders)
    }

    fn channel_config(
        &self,
        name: &Arc<str>,
        listener_name: Arc<str>,
        gates: Gates,
        meter: &Meter,
    ) -> ChannelConfig {
        ChannelConfig {
            listener_name,
            authority: Arc::clone(name),
            tree: TreeConfig {
                backoff: self.connect_backoff,
                connect_timeout: self.connect_timeout,
                keepalive_interval: self.connection.keepalive_interval,
                connections_per_subchannel_cap: self.connections_per_subchannel_cap,
                fallback_security: self.credentials.fallback_security(),
                ..TreeConfig::default()
            },
            failover_timeout: self.failover_timeout,
            dns: self.dns.clone(),
            gates,
            circuits: CircuitRegistry::global(),
            cluster_tls: self.credentials.cluster_tls(),
            idle_timeout: self.idle_timeout,
            meter: meter.clone(),
            // Each driver has its own.
            seed: 0,
        }
    }

    fn client_source(
        &self,
        target: &Arc<str>,
        authority: &Arc<str>,
        bootstrap: Bootstrap,
        gates: Gates,
        meter: &Meter,
    ) -> ClientSource {
        let own = match self.sharing {
            ClientSharing::PerTarget => true,
            ClientSharing::PerProcess => false,
            // A71-01: a fallback of one target must not switch the others.
            ClientSharing::Automatic => bootstrap.has_fallback(),
        };
        let pool = self.pool.clone().unwrap_or_else(ClientPool::global);
        ClientSource {
            key: ClientKey {
                bootstrap: pool.share(bootstrap),
                target: own.then(|| Arc::clone(target)),
                nack_mode: self.nack_mode,
                gates,
                limits: self.limits,
                policies: self.policies.clone(),
                resource_timeout: self.resource_timeout,
            },
            pool,
            target: Arc::clone(target),
            authority: Arc::clone(authority),
            meter: meter.clone(),
        }
    }

    fn connection_security(&self, name: &Arc<str>, clients: &ClientSource) -> ConnectionSecurity {
        ConnectionSecurity {
            credentials: self.credentials.clone(),
            target_name: Arc::clone(name),
            tls: clients.pool.tls(&clients.key.bootstrap),
            connector: self.backend_connector(),
        }
    }

    fn backend_connector(&self) -> Arc<dyn Connector> {
        match &self.connector {
            Some(connector) => Arc::clone(connector),
            None => Arc::new(TcpConnector::for_options(&self.connection)),
        }
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
            let interval = Duration::from_secs(seconds);
            XdsChannelBuilder::new("xds:///x").keepalive_interval(interval).connection.keepalive_interval
        };
        assert_eq!(kept(1), Some(Duration::from_secs(10)));
        assert_eq!(kept(11), Some(Duration::from_secs(11)));
    }

    #[test]
    fn backoffs_are_at_least_100_ms_and_grow_to_the_longest() {
        let millis = Duration::from_millis;
        let set = |initial, max| {
            let builder = XdsChannelBuilder::new("xds:///x").connect_backoff(millis(initial), millis(max));
            let BackoffConfig { initial, max, .. } = builder.connect_backoff;
            (initial, max)
        };
        assert_eq!(set(200, 5000), (millis(200), millis(5000)));
        assert_eq!(set(200, 150), (millis(200), millis(200)));
        assert_eq!(set(0, 0), (millis(100), millis(100)));
    }
}
