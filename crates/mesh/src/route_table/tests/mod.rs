//! Routes built by hand, and the RPCs that they take.

mod explain;
mod faults;
mod hashing;
mod matching;
mod selection;
mod sessions;

use http::{HeaderName, HeaderValue};
use proxyless_balancer::api::ClusterId;
use proxyless_balancer::testing::NoWake;
use proxyless_xds::resource::{
    ClusterSpecifier, FilterOverrides, HeaderMatcher, HeaderValueMatcher, PathMatcher, RouteAction,
    RouteMatch, StringMatchKind, StringMatcher, WeightedCluster,
};
use regex::Regex;

use super::*;

fn claim(name: &Arc<str>) -> Arc<ClusterClaim> {
    Arc::new(ClusterClaim::new(ClusterId(0), Arc::clone(name), &Arc::default(), Arc::new(NoWake)))
}

fn table(routes: Vec<Route>) -> RouteTable {
    table_of(&host(routes), None)
}

fn table_of(host: &VirtualHost, max_stream_duration: Option<Duration>) -> RouteTable {
    RouteTable::new(host, max_stream_duration, &[], claim)
}

fn host(routes: Vec<Route>) -> VirtualHost {
    VirtualHost {
        name: "host".into(),
        domains: vec!["*".into()],
        routes,
        retry_policy: None,
        filter_overrides: FilterOverrides::default(),
    }
}

/// A route for everything, to this cluster, which is also its name.
fn to(cluster: &str) -> Route {
    let path = PathMatcher::Prefix { prefix: String::new(), case_sensitive: true };
    Route {
        name: cluster.into(),
        matcher: RouteMatch { path, headers: Vec::new(), fraction_per_million: None },
        action: Some(action(ClusterSpecifier::Cluster(cluster.into()))),
        filter_overrides: FilterOverrides::default(),
    }
}

fn action(cluster: ClusterSpecifier) -> RouteAction {
    RouteAction {
        cluster,
        max_stream_duration: None,
        hash_policies: Vec::new(),
        retry_policy: None,
        auto_host_rewrite: false,
    }
}

fn on_path(path: PathMatcher) -> Route {
    let mut route = to("c");
    route.matcher.path = path;
    route
}

fn on_header(name: &str, value: HeaderValueMatcher, invert: bool) -> Route {
    let mut route = to("c");
    route.matcher.headers = vec![HeaderMatcher { name: name.into(), value, invert }];
    route
}

fn string(kind: StringMatchKind) -> HeaderValueMatcher {
    HeaderValueMatcher::String(StringMatcher { kind, ignore_case: false })
}

/// A regex of a matcher, anchored as validation leaves it.
fn whole(pattern: &str) -> Regex {
    regex(&format!("^(?:{pattern})$"))
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a valid pattern")
}

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    list.iter().map(pair).collect()
}

/// Whether the route takes an RPC.
fn takes(route: Route, path: &str, headers: &HeaderMap) -> bool {
    table(vec![route]).select(path, headers, &mut Rng::new(1)).is_ok()
}

fn cluster_of(table: &RouteTable, path: &str, rng: &mut Rng) -> String {
    table.select(path, &HeaderMap::new(), rng).expect("a route").cluster.name().to_string()
}
