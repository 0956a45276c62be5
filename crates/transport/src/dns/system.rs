//! DNS as configured in the system: `resolv.conf` and the hosts file.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{IntoName, Name, Record, RecordType};
use hickory_resolver::{Hosts, system_conf};
use tracing::debug;

use super::order::by_preference;
use super::query::DnsClient;
use super::{DnsAnswer, Resolve, ResolveError, ResolveErrorKind, Resolving};
use crate::targets;

/// Queries the hosts file, then DNS servers for A and AAAA records.
///
/// Servers, search list and options come from the system's configuration, which is read for every query, so that
/// changes need no restart. Nothing is cached.
#[derive(Clone, Debug, Default)]
pub struct SystemResolver {
    servers: Vec<SocketAddr>,
    timeout: Option<Duration>,
    attempts: Option<usize>,
}

impl SystemResolver {
    /// Creates a resolver with the system's configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queries these servers, without a search list; only the hosts file is read from the system.
    #[must_use]
    pub fn servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.servers = servers.into_iter().collect();
        self
    }

    /// The time for a server to answer; by default the system's setting, or 5 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The number of retries after a failure; by default the system's setting, or two.
    #[must_use]
    pub fn retries(mut self, retries: usize) -> Self {
        self.attempts = Some(retries);
        self
    }

    async fn look_up(&self, host: &str, port: u16) -> Result<DnsAnswer, ResolveError> {
        if host.contains('%') {
            return scoped(host, port).await;
        }
        let name = host.into_name().map_err(|error| ResolveError::failed(host, error))?;
        let Setup { hosts, dns } =
            self.clone().set_up().await.map_err(|why| ResolveError::failed(host, why))?;
        let fixed = [RecordType::AAAA, RecordType::A].map(|kind| in_hosts(&hosts, &name, kind));
        let fixed =
            by_preference(fixed.iter().flatten().flat_map(|lookup| addresses(lookup.answers(), port)));
        if !fixed.is_empty() {
            return Ok(DnsAnswer { addresses: fixed, ttl: None });
        }
        let dns = dns.map_err(|error| {
            let why = format!("the system's DNS configuration cannot be used: {error}");
            ResolveError::failed(host, why)
        })?;
        let records = match dns.addresses(name).await {
            Ok(records) => records,
            Err(error) => return Err(ResolveError::of_servers(host, dns.into_servers(), &error)),
        };
        let addresses = by_preference(addresses(&records, port));
        if addresses.is_empty() {
            return Err(ResolveError::new(host, ResolveErrorKind::NoAddresses));
        }
        // Includes those of aliases.
        let ttl = records.iter().map(|record| record.ttl).min();
        debug!(target: targets::DNS_RESOLVER, %host, ?addresses, ?ttl, "resolved");
        Ok(DnsAnswer { addresses, ttl: ttl.map(|ttl| Duration::from_secs(ttl.into())) })
    }

    /// Reads the system's files, on a blocking thread.
    async fn set_up(self) -> Result<Setup, String> {
        let read = move || Setup {
            hosts: Hosts::from_system().unwrap_or_default(),
            dns: self.configuration().and_then(|(config, options)| DnsClient::new(config, options)),
        };
        tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())
    }

    fn configuration(&self) -> Result<(ResolverConfig, ResolverOpts), NetError> {
        let (config, mut options) = match self.servers.is_empty() {
            true => system_conf::read_system_conf()?,
            false => (self.own_servers(), ResolverOpts::default()),
        };
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = 0;
        options.timeout = self.timeout.unwrap_or(options.timeout);
        options.attempts = self.attempts.unwrap_or(options.attempts);
        Ok((config, options))
    }

    fn own_servers(&self) -> ResolverConfig {
        let servers = self.servers.iter().map(|server| {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = server.port();
                connection
            });
            NameServerConfig::new(server.ip(), true, connections.into())
        });
        ResolverConfig::from_name_servers(servers.collect())
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(self.look_up(host, port))
    }
}

/// The configuration in the system's files.
struct Setup {
    hosts: Hosts,
    dns: Result<DnsClient, NetError>,
}

/// An address with a scope. Only the system knows the numbers of named scopes.
async fn scoped(host: &str, port: u16) -> Result<DnsAnswer, ResolveError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses = found.map_err(|error| ResolveError::failed(host, error))?.collect();
    Ok(DnsAnswer { addresses, ttl: None })
}

fn in_hosts(hosts: &Hosts, name: &Name, kind: RecordType) -> Option<Lookup> {
    hosts.lookup_static_host(&Query::query(name.clone(), kind))
}

fn addresses(records: &[Record], port: u16) -> impl Iterator<Item = SocketAddr> {
    records.iter().filter_map(move |record| Some(SocketAddr::new(record.data.ip_addr()?, port)))
}
