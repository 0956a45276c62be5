//! DNS queries: for both families, every name of the search list, and every server.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use tokio::time::timeout;

/// The time to wait for the other family when one has addresses (RFC 8305, section 3: the Resolution Delay). Longer
/// than the 50 ms recommended for browsers, because a later answer is not used until the next query.
const RESOLUTION_DELAY: Duration = Duration::from_millis(500);

/// The client and its servers.
pub(super) struct DnsClient {
    servers: Vec<SocketAddr>,
    /// A resolver that queries all servers in parallel and, if there are several, one for each of them.
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

    /// All records that lead to the addresses of the first candidate name that has any.
    pub(super) async fn addresses(&self, name: Name) -> Result<Vec<Record>, NetError> {
        let mut failure = None;
        for name in candidates(name, &self.search, self.ndots) {
            let Failure { error, answered } = match self.both_families(&name).await {
                Ok(records) => return Ok(records),
                Err(failure) => failure,
            };
            // If no server answers, other names will not be answered either.
            if !answered {
                return Err(error);
            }
            failure = Some(match failure {
                Some(earlier) => more_telling(earlier, error),
                None => error,
            });
        }
        Err(failure.unwrap_or(NetError::NoConnections))
    }

    /// The records of both families. Some networks never answer for one of them, so the wait for it is short if the
    /// other has sufficed.
    async fn both_families(&self, name: &Name) -> Result<Vec<Record>, Failure> {
        let mut v6 = pin!(self.records(name, RecordType::AAAA));
        let mut v4 = pin!(self.records(name, RecordType::A));
        let (of_v6, of_v4) = tokio::select! {
            of_v6 = &mut v6 => {
                let limit = has_addresses(&of_v6).then_some(RESOLUTION_DELAY);
                (of_v6, within(limit, v4).await)
            }
            of_v4 = &mut v4 => {
                // NXDOMAIN applies to the name, not the family. (Some servers return it for AAAA although there are A
                // records.)
                let enough = has_addresses(&of_v4) || of_v4.as_ref().is_err_and(is_no_name);
                (within(enough.then_some(RESOLUTION_DELAY), v6).await, of_v4)
            }
        };
        match (of_v6, of_v4) {
            (Ok(v6), Ok(v4)) => Ok(v6.into_iter().chain(v4).collect()),
            (Ok(records), Err(_)) | (Err(_), Ok(records)) => Ok(records),
            (Err(of_v6), Err(of_v4)) => {
                let answered = [&of_v6, &of_v4].iter().any(|error| matches!(error, NetError::Dns(_)));
                let error = if is_no_name(&of_v4) { of_v4 } else { more_telling(of_v4, of_v6) };
                Err(Failure { error, answered })
            }
        }
    }

    async fn records(&self, name: &Name, kind: RecordType) -> Result<Vec<Record>, NetError> {
        let mut failure = NetError::NoConnections;
        for resolver in &self.resolvers {
            match resolver.lookup(name.clone(), kind).await {
                Ok(lookup) => return Ok(lookup.answers().to_vec()),
                // hickory uses the first answer, but where one server is broken, others may work.
                Err(error @ NetError::Dns(DnsError::ResponseCode(_))) => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }
}

/// The reason why a name has no addresses.
struct Failure {
    error: NetError,
    /// Whether a server has answered.
    answered: bool,
}

type Records = Result<Vec<Record>, NetError>;

/// Waits for the records of a family, up to the limit if there is one.
async fn within(limit: Option<Duration>, family: impl Future<Output = Records>) -> Records {
    match limit {
        Some(limit) => timeout(limit, family).await.unwrap_or(Err(NetError::Timeout)),
        None => family.await,
    }
}

fn has_addresses(records: &Records) -> bool {
    records.as_ref().is_ok_and(|records| records.iter().any(|record| record.data.ip_addr().is_some()))
}

/// Whether the server returned NXDOMAIN.
fn is_no_name(error: &NetError) -> bool {
    match error {
        NetError::Dns(DnsError::ResponseCode(code)) => *code == ResponseCode::NXDomain,
        NetError::Dns(DnsError::NoRecordsFound(none)) => none.response_code == ResponseCode::NXDomain,
        _ => false,
    }
}

/// The candidates of a name by `resolv.conf`, in order: a name with enough dots is tried as it is first, others last.
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

/// Prefers errors over empty results.
fn more_telling(first: NetError, second: NetError) -> NetError {
    if first.is_no_records_found() && !second.is_no_records_found() { second } else { first }
}

fn address(server: &NameServerConfig) -> Option<SocketAddr> {
    Some(SocketAddr::new(server.ip, server.connections.first()?.port))
}

#[cfg(test)]
#[path = "../../tests/support/dns_server.rs"]
mod dns_server;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_resolver::config::ConnectionConfig;
    use hickory_resolver::proto::rr::RData;

    use super::dns_server::{DnsServer, Reply};
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

    #[tokio::test]
    async fn a37_29_the_search_list_is_searched_although_aaaa_is_not_answered() {
        let server = DnsServer::start(|name, kind| match (kind, name.to_string().as_str()) {
            (RecordType::A, "db.svc.test.") => {
                Reply::Records(vec![(name.clone(), 60, RData::A(Ipv4Addr::LOCALHOST.into()))])
            }
            (RecordType::A, _) => Reply::Code(ResponseCode::NXDomain),
            _ => Reply::Silence,
        })
        .await;
        let mut connection = ConnectionConfig::udp();
        connection.port = server.address.port();
        let name_server = NameServerConfig::new(server.address.ip(), true, vec![connection]);
        let search = ["ns.svc.test.", "svc.test."].map(|domain| Name::from_utf8(domain).unwrap());
        let config = ResolverConfig::from_parts(None, search.into(), vec![name_server]);
        let mut options = ResolverOpts::default();
        options.timeout = Duration::from_secs(60);
        let client = DnsClient::new(config, options).unwrap();
        let found = timeout(Duration::from_secs(30), client.addresses(Name::from_utf8("db").unwrap())).await;
        let records = found.expect("AAAA is not waited for").unwrap();
        assert_eq!(records.len(), 1);
        assert!(server.asked().contains(&("db.ns.svc.test.".to_owned(), RecordType::AAAA)));
    }
}
