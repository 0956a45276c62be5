//! Questions to DNS servers: both families, every name of the search list, every server.

use std::net::SocketAddr;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{Name, Record, RecordType};

/// Who is asked, and how.
pub(super) struct DnsClient {
    servers: Vec<SocketAddr>,
    /// One that asks all servers at a time and, if there are several, one for each of them.
    resolvers: Vec<TokioResolver>,
    search: Vec<Name>,
    ndots: usize,
}

impl DnsClient {
    pub(super) fn new(config: ResolverConfig, options: ResolverOpts) -> Result<Self, NetError> {
        let (domain, search, servers) = config.into_parts();
        let search = if search.is_empty() { domain.into_iter().collect() } else { search };
        let each = servers.iter().filter(|_| servers.len() > 1).map(|server| vec![server.clone()]);
        let groups = std::iter::once(servers.clone()).chain(each);
        let resolvers = groups.map(|group| {
            let config = ResolverConfig::from_name_servers(group);
            let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.with_options(options.clone()).build()
        });
        Ok(Self {
            resolvers: resolvers.collect::<Result<_, _>>()?,
            servers: servers.iter().filter_map(address).collect(),
            search,
            ndots: options.ndots,
        })
    }

    pub(super) fn into_servers(self) -> Vec<SocketAddr> {
        self.servers
    }

    /// All records on the way to the addresses of the first of the names in question that has some.
    pub(super) async fn addresses(&self, name: Name) -> Result<Vec<Record>, NetError> {
        let mut failure = None;
        for name in candidates(name, &self.search, self.ndots) {
            let error = match self.both_families(&name).await {
                Ok(records) => return Ok(records),
                Err(error) => error,
            };
            // Where nobody answers, another name will not be answered either.
            if !matches!(error, NetError::Dns(_)) {
                return Err(error);
            }
            failure = Some(match failure {
                Some(earlier) => more_telling(earlier, error),
                None => error,
            });
        }
        Err(failure.unwrap_or(NetError::NoConnections))
    }

    async fn both_families(&self, name: &Name) -> Result<Vec<Record>, NetError> {
        match tokio::join!(self.records(name, RecordType::AAAA), self.records(name, RecordType::A)) {
            (Ok(v6), Ok(v4)) => Ok(v6.into_iter().chain(v4).collect()),
            (Ok(records), Err(_)) | (Err(_), Ok(records)) => Ok(records),
            (Err(of_v6), Err(of_v4)) => Err(more_telling(of_v4, of_v6)),
        }
    }

    async fn records(&self, name: &Name, kind: RecordType) -> Result<Vec<Record>, NetError> {
        let mut failure = NetError::NoConnections;
        for resolver in &self.resolvers {
            match resolver.lookup(name.clone(), kind).await {
                Ok(lookup) => return Ok(lookup.answers().to_vec()),
                // The first answer counts for hickory, but where one server is broken others may be well.
                Err(error @ NetError::Dns(DnsError::ResponseCode(_))) => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }
}

/// What `resolv.conf` makes of a name, in order: a name with enough dots is tried as it is first, others last.
fn candidates(name: Name, search: &[Name], ndots: usize) -> Vec<Name> {
    if name.is_fqdn() {
        return vec![name];
    }
    let within = search.iter().filter_map(|domain| name.clone().append_domain(domain).ok());
    let mut names: Vec<Name> = within.collect();
    let has_enough_dots = usize::from(name.num_labels()) > ndots;
    let place = if has_enough_dots { 0 } else { names.len() };
    names.insert(place, name);
    names.iter_mut().for_each(|name| name.set_fqdn(true));
    names
}

/// That there is nothing says less than that something went wrong.
fn more_telling(first: NetError, second: NetError) -> NetError {
    if first.is_no_records_found() && !second.is_no_records_found() { second } else { first }
}

fn address(server: &NameServerConfig) -> Option<SocketAddr> {
    Some(SocketAddr::new(server.ip, server.connections.first()?.port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_list_is_tried_as_resolv_conf_says() {
        let search = ["ns.svc.test", "svc.test."].map(|domain| Name::from_utf8(domain).unwrap());
        let of = |name: &str, ndots| {
            let names = candidates(Name::from_utf8(name).unwrap(), &search, ndots);
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("db", 1), "db.ns.svc.test. db.svc.test. db.");
        assert_eq!(of("db.prod", 1), "db.prod. db.prod.ns.svc.test. db.prod.svc.test.");
        assert_eq!(of("db.prod", 5), "db.prod.ns.svc.test. db.prod.svc.test. db.prod.");
        assert_eq!(of("db.", 1), "db.");
    }
}
