//! Stateful sessions (gRFC A55, A60, A61): a cookie in the request names the endpoint of its RPC, and a response from a
//! different endpoint sets a new cookie.
//!
//! The cookie's value is the base64 of `address,address…;cluster`: all addresses of the endpoint, starting with the one
//! in use, and the cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use proxyless_balancer::api::{ActualHost, HostWait, OverrideHost};
use proxyless_mesh::cluster_claim::RpcClaim;
use proxyless_mesh::route_table::Selection;
use proxyless_sans_io::Time;
use proxyless_xds::resource::CookieSession;

use crate::targets;

/// Encoded with padding, decoded with or without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The session of one RPC.
pub(crate) struct Session {
    config: Arc<CookieSession>,
    cluster: RpcClaim,
    /// The addresses in the cookie, in order.
    addresses: Arc<[SocketAddr]>,
    /// Whether the cookie consists of exactly these addresses and this cluster.
    cookie_is_exact: bool,
}

impl Session {
    /// The session of an RPC to this path, if its route has sessions for it. Determines the cluster.
    pub(crate) fn begin(selection: &Selection<'_>, path: &str, headers: &HeaderMap) -> Option<Self> {
        let config = selection.session?;
        // A55: other paths are ignored.
        if !path_matches(&config.path, path) {
            return None;
        }
        let value = cookie(headers, &config.name).and_then(decode);
        let cookie = value.as_deref().map(Cookie::parse).unwrap_or_default();
        // A60: the cluster of the cookie takes precedence if it is in the route.
        let cluster = selection.cluster_named(cookie.cluster).unwrap_or(selection.cluster);
        Some(Self {
            config: Arc::clone(config),
            cluster: cluster.hold(),
            cookie_is_exact: cookie.is_exact && **cluster.name() == *cookie.cluster,
            addresses: cookie.addresses.into(),
        })
    }

    /// The cluster to use.
    pub(crate) fn cluster(&self) -> &RpcClaim {
        &self.cluster
    }

    /// The name of its cookie.
    pub(crate) fn cookie_name(&self) -> &str {
        &self.config.name
    }

    /// The addresses in the cookie, in order.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The input for pickers, with the state of the attempt's previous pick.
    pub(crate) fn override_host(&self, now: Time, waiting: Option<HostWait>) -> OverrideHost {
        OverrideHost { waiting, ..OverrideHost::new(Arc::clone(&self.addresses), now) }
    }

    /// Sets a new cookie in the response headers, unless the RPC went where its cookie said.
    pub(crate) fn answered(&self, actual: &ActualHost, headers: &mut HeaderMap) {
        // A60, A61: a different endpoint, address list or cluster.
        if self.cookie_is_exact && actual.address_list().eq(self.addresses.iter().copied()) {
            return;
        }
        // A name that is invalid in a header gets no cookie.
        if let Ok(value) = HeaderValue::try_from(self.set_cookie(actual)) {
            headers.append(SET_COOKIE, value);
        }
    }

    fn set_cookie(&self, actual: &ActualHost) -> String {
        let addresses: Vec<_> = actual.address_list().map(|address| address.to_string()).collect();
        let value = BASE64.encode(format!("{};{}", addresses.join(","), self.cluster.name()));
        let CookieSession { name, path, ttl } = &*self.config;
        let mut cookie = format!("{name}={value}; HttpOnly");
        if !path.is_empty() {
            cookie.push_str("; Path=");
            cookie.push_str(path);
        }
        if !ttl.is_zero() {
            // Zero would make the caller delete the cookie.
            cookie.push_str(&format!("; Max-Age={}", ttl.as_secs().max(1)));
        }
        cookie
    }
}

/// The content of a cookie.
#[derive(Default)]
struct Cookie<'a> {
    addresses: Vec<SocketAddr>,
    cluster: &'a str,
    /// Whether all of its addresses are valid, and there is at least one.
    is_exact: bool,
}

impl<'a> Cookie<'a> {
    fn parse(text: &'a str) -> Self {
        let (list, cluster) = text.split_once(';').unwrap_or((text, ""));
        let parsed = list.split(',').map(str::parse);
        let addresses: Vec<SocketAddr> = parsed.clone().filter_map(Result::ok).collect();
        let is_exact = parsed.clone().all(|address| address.is_ok());
        if !is_exact {
            // A55: invalid addresses are ignored. Cookies may come from end users, who must not be able to fill the
            // log, and the log must not expose them.
            tracing::debug!(target: targets::STATEFUL_SESSION, length = list.len(),
                "ignoring an invalid address in the session cookie");
        }
        Self { addresses, cluster, is_exact }
    }
}

/// A55: the value of the first cookie of this name.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn decode(value: &str) -> Option<String> {
    let bytes = BASE64.decode(value).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

/// Whether a cookie for one path applies to requests to another (RFC 6265, section 5.1.4); one without a path always
/// does.
fn path_matches(cookie: &str, request: &str) -> bool {
    match request.strip_prefix(cookie) {
        Some(rest) => cookie.is_empty() || rest.is_empty() || cookie.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proxyless_balancer::api::ClusterId;
    use proxyless_balancer::testing::NoWake;
    use proxyless_mesh::cluster_claim::ClusterClaim;
    use proxyless_mesh::route_table::RouteTable;
    use proxyless_sans_io::Rng;
    use proxyless_xds::resource::{
        ClusterSpecifier, FilterOverrides, HttpFilter, HttpFilterConfig, PathMatcher, Route, RouteAction,
        RouteMatch, VirtualHost, WeightedCluster,
    };

    use super::*;

    /// A route by weight to `a` alone, which also contains `b`; a cookie with this path and lifetime.
    fn table(path: &str, ttl: u64) -> RouteTable {
        table_with(path, Duration::from_secs(ttl))
    }

    fn table_with(path: &str, ttl: Duration) -> RouteTable {
        let session = CookieSession { name: "sid".into(), path: path.into(), ttl };
        let config = HttpFilterConfig::StatefulSession(Some(Arc::new(session)));
        let filters = [HttpFilter { name: "session".into(), config }];
        let clusters = [("a", 1), ("b", 0)].map(|(name, weight)| WeightedCluster {
            name: name.into(),
            weight,
            filter_overrides: FilterOverrides::default(),
        });
        let action = RouteAction {
            cluster: ClusterSpecifier::Weighted(clusters.into()),
            max_stream_duration: None,
            hash_policies: Vec::new(),
            retry_policy: None,
            auto_host_rewrite: false,
        };
        let path = PathMatcher::Prefix { prefix: String::new(), case_sensitive: true };
        let route = Route {
            name: "route".into(),
            matcher: RouteMatch { path, headers: Vec::new(), fraction_per_million: None },
            action: Some(action),
            filter_overrides: FilterOverrides::default(),
        };
        let host = VirtualHost {
            name: "host".into(),
            domains: vec!["*".into()],
            routes: vec![route],
            retry_policy: None,
            filter_overrides: FilterOverrides::default(),
        };
        RouteTable::new(&host, None, &filters, |name| {
            Arc::new(ClusterClaim::new(ClusterId(0), Arc::clone(name), &Arc::default(), Arc::new(NoWake)))
        })
    }

    fn begin(table: &RouteTable, path: &str, cookies: &[&str]) -> Option<Session> {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, HeaderValue::from_str(cookie).unwrap());
        }
        let selection = table.select(path, &headers, &mut Rng::new(1)).unwrap();
        Session::begin(&selection, path, &headers)
    }

    /// The session of an RPC whose cookie has this text.
    fn with(text: &str) -> Session {
        begin(&table("", 0), "/s/m", &[&format!("sid={}", BASE64.encode(text))]).unwrap()
    }

    fn address(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 80).into()
    }

    fn actual(numbers: &[u8]) -> ActualHost {
        let addresses: Arc<[_]> = numbers.iter().map(|&n| address(n)).collect();
        ActualHost { address: addresses[0], addresses }
    }

    fn set_cookie(session: &Session, actual: &ActualHost) -> Option<String> {
        let mut headers = HeaderMap::new();
        session.answered(actual, &mut headers);
        headers.get(SET_COOKIE).map(|value| value.to_str().unwrap().to_owned())
    }

    /// The decoded value of a set-cookie header.
    fn text(set_cookie: &str) -> String {
        let value = set_cookie.strip_prefix("sid=").unwrap().split(';').next().unwrap();
        decode(value).unwrap()
    }

    #[test]
    fn a55_without_a_cookie_the_answer_sets_one() {
        let session = begin(&table("", 0), "/s/m", &[]).unwrap();
        assert!(session.addresses.is_empty());
        let cookie = set_cookie(&session, &actual(&[1])).unwrap();
        assert_eq!(text(&cookie), "10.0.0.1:80;a");
        assert!(cookie.ends_with("; HttpOnly"), "{cookie}");
    }

    #[test]
    fn a55_the_cookie_has_the_path_and_the_ttl_of_the_configuration() {
        let session = begin(&table("/s", 90), "/s/m", &[]).unwrap();
        let cookie = set_cookie(&session, &actual(&[1])).unwrap();
        assert!(cookie.ends_with("; HttpOnly; Path=/s; Max-Age=90"), "{cookie}");
    }

    #[test]
    fn a55_a_ttl_below_a_second_does_not_delete_the_cookie() {
        let session = begin(&table_with("", Duration::from_millis(300)), "/s/m", &[]).unwrap();
        let cookie = set_cookie(&session, &actual(&[1])).unwrap();
        assert!(cookie.ends_with("; HttpOnly; Max-Age=1"), "{cookie}");
    }

    #[test]
    fn a55_a61_the_addresses_of_the_cookie_go_to_the_pick() {
        assert_eq!(*with("10.0.0.1:80;a").addresses, [address(1)]);
        assert_eq!(*with("10.0.0.2:80,10.0.0.1:80;a").addresses, [address(2), address(1)]);
        assert_eq!(*with("[::1]:80;a").addresses, ["[::1]:80".parse().unwrap()]);
        assert_eq!(*with("10.0.0.1:80").addresses, [address(1)], "A55's cookies have no cluster");
    }

    #[test]
    fn a55_a61_no_new_cookie_if_the_endpoint_is_the_same() {
        assert_eq!(set_cookie(&with("10.0.0.1:80;a"), &actual(&[1])), None);
        assert_eq!(set_cookie(&with("10.0.0.1:80,10.0.0.2:80;a"), &actual(&[1, 2])), None);
        for cookie in
            ["10.0.0.9:80;a", "10.0.0.2:80,10.0.0.1:80;a", "10.0.0.1:80;a", "10.0.0.1:80,10.0.0.2:80"]
        {
            let new = set_cookie(&with(cookie), &actual(&[1, 2])).expect(cookie);
            assert_eq!(text(&new), "10.0.0.1:80,10.0.0.2:80;a");
        }
    }

    #[test]
    fn a60_the_cluster_of_the_cookie_wins_if_the_route_has_it() {
        let session = with("10.0.0.1:80;b");
        assert_eq!(&**session.cluster().name(), "b");
        assert_eq!(set_cookie(&session, &actual(&[1])), None);
        assert_eq!(text(&set_cookie(&session, &actual(&[2])).unwrap()), "10.0.0.2:80;b");
        let session = with("10.0.0.1:80;other");
        assert_eq!(&**session.cluster().name(), "a");
        assert_eq!(
            text(&set_cookie(&session, &actual(&[1])).unwrap()),
            "10.0.0.1:80;a",
            "the cluster changed"
        );
    }

    #[test]
    fn a55_the_first_cookie_of_the_name_counts() {
        let encoded = |text: &str| format!("sid={}", BASE64.encode(text));
        let (one, two) = (encoded("10.0.0.1:80;a"), encoded("10.0.0.2:80;a"));
        let table = table("", 0);
        for cookies in [
            vec![format!("other=1; {one}; {two}")],
            vec!["other=1".to_owned(), one.clone(), two.clone()],
            vec![format!("xsid=1;{one};{two}")],
            vec![one.trim_end_matches('=').to_owned()],
        ] {
            let cookies: Vec<_> = cookies.iter().map(String::as_str).collect();
            assert_eq!(*begin(&table, "/s/m", &cookies).unwrap().addresses, [address(1)], "{cookies:?}");
        }
    }

    #[test]
    fn a55_a_cookie_without_a_valid_address_is_ignored_and_replaced() {
        let no_address = format!("sid={}", BASE64.encode("not an address"));
        let no_text = format!("sid={}", BASE64.encode(b"\xff\xff"));
        let table = table("", 0);
        for cookie in ["sid=%%%", "sid=", "sid", "", &no_address, &no_text] {
            let session = begin(&table, "/s/m", &[cookie]).unwrap();
            assert!(session.addresses.is_empty(), "{cookie}");
            assert!(set_cookie(&session, &actual(&[1])).is_some(), "{cookie}");
        }
        let mixed = with("nonsense,10.0.0.1:80;a");
        assert_eq!(*mixed.addresses, [address(1)]);
        assert!(set_cookie(&mixed, &actual(&[1])).is_some());
    }

    #[test]
    fn a55_paths_match_as_in_rfc_6265() {
        for (cookie, request, matches) in [
            ("", "/s/m", true),
            ("/", "/s/m", true),
            ("/s", "/s/m", true),
            ("/s/", "/s/m", true),
            ("/s/m", "/s/m", true),
            ("/s/m", "/s/method", false),
            ("/s", "/service/m", false),
            ("/s/m/", "/s/m", false),
            ("/other", "/s/m", false),
        ] {
            assert_eq!(path_matches(cookie, request), matches, "{cookie} {request}");
            assert_eq!(begin(&table(cookie, 0), request, &[]).is_some(), matches, "{cookie} {request}");
        }
    }
}
