//! Which session config an RPC gets (gRFC A39, A55), and which clusters its cookie may choose (A60).

use proxyless_xds::resource::HttpFilterConfig;

use super::*;

fn config(name: &str) -> HttpFilterConfig {
    let session = CookieSession { name: name.into(), path: "".into(), ttl: Duration::ZERO };
    HttpFilterConfig::StatefulSession(Some(Arc::new(session)))
}

const OFF: HttpFilterConfig = HttpFilterConfig::StatefulSession(None);

fn filter(name: &str, config: HttpFilterConfig) -> HttpFilter {
    HttpFilter { name: name.into(), config }
}

fn overriding(config: HttpFilterConfig) -> FilterOverrides {
    [("session".into(), config)].into_iter().collect()
}

fn weighted(name: &str, weight: u32, filter_overrides: FilterOverrides) -> WeightedCluster {
    WeightedCluster { name: name.into(), weight, filter_overrides }
}

/// The name of the cookie.
fn cookie(host: &VirtualHost, filters: &[HttpFilter]) -> Option<String> {
    let table = RouteTable::new(host, None, filters, claim);
    let selection = table.select("/", &HeaderMap::new(), &mut Rng::new(1)).expect("a route");
    selection.session.map(|session| session.name.to_string())
}

#[test]
fn a39_the_most_specific_override_counts() {
    let filters = [filter("session", config("listener")), filter("router", HttpFilterConfig::Router)];
    let mut host = host(vec![to("c")]);
    assert_eq!(cookie(&host, &filters).as_deref(), Some("listener"));
    host.filter_overrides = overriding(config("host"));
    assert_eq!(cookie(&host, &filters).as_deref(), Some("host"));
    host.routes[0].filter_overrides = overriding(config("route"));
    assert_eq!(cookie(&host, &filters).as_deref(), Some("route"));
    let cluster = weighted("c", 1, overriding(config("cluster")));
    host.routes[0].action = Some(action(ClusterSpecifier::Weighted(vec![cluster])));
    assert_eq!(cookie(&host, &filters).as_deref(), Some("cluster"));
}

#[test]
fn a55_an_override_turns_sessions_off_and_on() {
    let mut host = host(vec![to("c")]);
    host.filter_overrides = overriding(OFF);
    assert_eq!(cookie(&host, &[filter("session", config("listener"))]), None);
    host.routes[0].filter_overrides = overriding(config("route"));
    assert_eq!(cookie(&host, &[filter("session", OFF)]).as_deref(), Some("route"));
}

#[test]
fn a39_the_most_specific_override_says_whether_the_filter_is_disabled() {
    let on = [filter("session", config("listener"))];
    // A filter that is disabled in the connection manager is read as one that is off.
    let off = [filter("session", OFF)];
    let mut host = host(vec![to("c")]);
    assert_eq!(cookie(&host, &off), None);
    host.filter_overrides = overriding(HttpFilterConfig::Disabled);
    assert_eq!(cookie(&host, &on), None);
    host.routes[0].filter_overrides = overriding(config("route"));
    for filters in [&on, &off] {
        assert_eq!(cookie(&host, filters).as_deref(), Some("route"), "the route turns it on again");
    }
    host.routes[0].filter_overrides = overriding(HttpFilterConfig::Disabled);
    host.filter_overrides = overriding(config("host"));
    assert_eq!(cookie(&host, &on), None);
}

#[test]
fn a39_an_override_counts_for_the_filter_of_its_name() {
    let mut host = host(vec![to("c")]);
    host.filter_overrides = overriding(config("host"));
    assert_eq!(cookie(&host, &[]), None, "no such filter");
    assert_eq!(cookie(&host, &[filter("other", config("other"))]).as_deref(), Some("other"));
    let two = [filter("session", OFF), filter("other", OFF)];
    assert_eq!(cookie(&host, &two).as_deref(), Some("host"), "the one that is on");
    let two = [filter("first", config("first")), filter("second", config("second"))];
    assert_eq!(cookie(&host, &two).as_deref(), Some("second"), "the last one");
}

#[test]
fn a60_the_cookie_may_choose_among_the_clusters_of_its_route() {
    let list = [("a", 1), ("b", 1), ("zero", 0)];
    let list = list.map(|(name, weight)| weighted(name, weight, FilterOverrides::default()));
    let weighted = Route { action: Some(action(ClusterSpecifier::Weighted(list.into()))), ..to("weighted") };
    let mut other = to("other");
    other.matcher.path = PathMatcher::Path { path: "/other".into(), case_sensitive: true };
    let table = table(vec![other, weighted]);
    let headers = HeaderMap::new();
    let mut rng = Rng::new(1);
    let selection = table.select("/", &headers, &mut rng).expect("a route");
    for name in ["a", "b", "zero"] {
        assert_eq!(&**selection.cluster_named(name).expect(name).name(), name);
    }
    assert!(selection.cluster_named("other").is_none(), "that is another route's");
    let selection = table.select("/other", &headers, &mut rng).expect("a route");
    assert!(selection.cluster_named("other").is_some());
    assert!(selection.cluster_named("a").is_none());
}
