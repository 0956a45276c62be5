//! Route configurations, virtual hosts, routes and header matchers.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route::Action;
use envoy_types::pb::envoy::config::route::v3::route_action::{ClusterSpecifier, HostRewriteSpecifier};
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, WeightedCluster,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::Int64Range;
use envoy_types::pb::google::protobuf::{BoolValue, UInt32Value};

use super::per_million;

/// A route configuration.
pub fn route_config(name: &str, hosts: impl IntoIterator<Item = VirtualHost>) -> RouteConfiguration {
    RouteConfiguration { name: name.into(), virtual_hosts: hosts.into_iter().collect(), ..Default::default() }
}

/// A route configuration that sends everything to one cluster.
pub fn simple_route_config(name: &str, cluster: &str) -> RouteConfiguration {
    route_config(name, [virtual_host(["*"], [route(cluster)])])
}

/// A virtual host for these domains.
pub fn virtual_host<'a>(
    domains: impl IntoIterator<Item = &'a str>,
    routes: impl IntoIterator<Item = Route>,
) -> VirtualHost {
    VirtualHost {
        name: "virtual-host".into(),
        domains: domains.into_iter().map(String::from).collect(),
        routes: routes.into_iter().collect(),
        ..Default::default()
    }
}

/// A route to this cluster that matches everything; [`RouteExt`] narrows it.
pub fn route(cluster: &str) -> Route {
    route_by(ClusterSpecifier::Cluster(cluster.into()))
}

/// A route to weighted clusters that matches everything.
pub fn weighted_route<'a>(clusters: impl IntoIterator<Item = (&'a str, u32)>) -> Route {
    let clusters = clusters.into_iter().map(|(name, value)| ClusterWeight {
        name: name.into(),
        weight: Some(UInt32Value { value }),
        ..Default::default()
    });
    let weighted = WeightedCluster { clusters: clusters.collect(), ..Default::default() };
    route_by(ClusterSpecifier::WeightedClusters(weighted))
}

fn route_by(specifier: ClusterSpecifier) -> Route {
    let action = RouteAction { cluster_specifier: Some(specifier), ..Default::default() };
    Route { action: Some(Action::Route(action)), ..Default::default() }.prefix("")
}

/// The conditions of a route.
pub trait RouteExt {
    /// Matches paths with this prefix.
    #[must_use]
    fn prefix(self, prefix: &str) -> Self;
    /// Matches this path.
    #[must_use]
    fn path(self, path: &str) -> Self;
    /// Matches paths that match this expression as a whole.
    #[must_use]
    fn regex(self, regex: &str) -> Self;
    /// Ignores case in the path.
    #[must_use]
    fn ignore_case(self) -> Self;
    /// Requires this header; with several, all must match.
    #[must_use]
    fn header(self, matcher: HeaderMatcher) -> Self;
    /// Matches only this fraction of the requests.
    #[must_use]
    fn fraction(self, per_million: u32) -> Self;
    /// Rewrites the authority to the endpoint's host name (A81).
    #[must_use]
    fn auto_host_rewrite(self) -> Self;
}

impl RouteExt for Route {
    fn prefix(self, prefix: &str) -> Self {
        change_match(self, |m| m.path_specifier = Some(PathSpecifier::Prefix(prefix.into())))
    }

    fn path(self, path: &str) -> Self {
        change_match(self, |m| m.path_specifier = Some(PathSpecifier::Path(path.into())))
    }

    fn regex(self, regex: &str) -> Self {
        change_match(self, |m| m.path_specifier = Some(PathSpecifier::SafeRegex(regex_matcher(regex))))
    }

    fn ignore_case(self) -> Self {
        change_match(self, |m| m.case_sensitive = Some(BoolValue { value: false }))
    }

    fn header(self, matcher: HeaderMatcher) -> Self {
        change_match(self, |m| m.headers.push(matcher))
    }

    fn fraction(self, share: u32) -> Self {
        let fraction =
            RuntimeFractionalPercent { default_value: Some(per_million(share)), ..Default::default() };
        change_match(self, |m| m.runtime_fraction = Some(fraction))
    }

    fn auto_host_rewrite(mut self) -> Self {
        if let Some(Action::Route(action)) = &mut self.action {
            let rewrite = HostRewriteSpecifier::AutoHostRewrite(BoolValue { value: true });
            action.host_rewrite_specifier = Some(rewrite);
        }
        self
    }
}

fn change_match(mut route: Route, change: impl FnOnce(&mut RouteMatch)) -> Route {
    change(route.r#match.get_or_insert_default());
    route
}

/// A matcher of a header that must be present; [`HeaderExt`] has further conditions.
pub fn header(name: &str) -> HeaderMatcher {
    HeaderMatcher {
        name: name.into(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
        ..Default::default()
    }
}

/// The conditions on a header.
pub trait HeaderExt {
    /// The value equals this.
    #[must_use]
    fn exact(self, value: &str) -> Self;
    /// The value starts with this.
    #[must_use]
    fn starts_with(self, prefix: &str) -> Self;
    /// The value ends with this.
    #[must_use]
    fn ends_with(self, suffix: &str) -> Self;
    /// The value contains this.
    #[must_use]
    fn contains(self, part: &str) -> Self;
    /// The value matches this expression as a whole.
    #[must_use]
    fn regex(self, regex: &str) -> Self;
    /// The value is a number in this range.
    #[must_use]
    fn range(self, range: std::ops::Range<i64>) -> Self;
    /// The header is absent.
    #[must_use]
    fn absent(self) -> Self;
    /// Inverts the condition.
    #[must_use]
    fn inverted(self) -> Self;
}

impl HeaderExt for HeaderMatcher {
    fn exact(self, value: &str) -> Self {
        by_string(self, MatchPattern::Exact(value.into()))
    }

    fn starts_with(self, prefix: &str) -> Self {
        by_string(self, MatchPattern::Prefix(prefix.into()))
    }

    fn ends_with(self, suffix: &str) -> Self {
        by_string(self, MatchPattern::Suffix(suffix.into()))
    }

    fn contains(self, part: &str) -> Self {
        by_string(self, MatchPattern::Contains(part.into()))
    }

    fn regex(self, regex: &str) -> Self {
        by_string(self, MatchPattern::SafeRegex(regex_matcher(regex)))
    }

    fn range(mut self, range: std::ops::Range<i64>) -> Self {
        let range = Int64Range { start: range.start, end: range.end };
        self.header_match_specifier = Some(HeaderMatchSpecifier::RangeMatch(range));
        self
    }

    fn absent(mut self) -> Self {
        self.header_match_specifier = Some(HeaderMatchSpecifier::PresentMatch(false));
        self
    }

    fn inverted(mut self) -> Self {
        self.invert_match = true;
        self
    }
}

fn by_string(mut matcher: HeaderMatcher, pattern: MatchPattern) -> HeaderMatcher {
    let string = StringMatcher { match_pattern: Some(pattern), ..Default::default() };
    matcher.header_match_specifier = Some(HeaderMatchSpecifier::StringMatch(string));
    matcher
}

fn regex_matcher(regex: &str) -> RegexMatcher {
    RegexMatcher { regex: regex.into(), ..Default::default() }
}
