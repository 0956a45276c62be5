//! Route actions (gRFC A28, A31, A42, A81).

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use wire::route_action::hash_policy::PolicySpecifier;
use wire::route_action::{ClusterSpecifier as Specifier, HostRewriteSpecifier};

use super::retry::retry_policy;
use super::{ClusterSpecifier, HashPolicy, HashPolicyKind, HeaderRewrite, RouteAction, WeightedCluster};
use crate::resource::common::duration;
use crate::resource::field::Field;
use crate::resource::filter::filter_overrides;
use crate::resource::matcher::compile;

/// A route action; `None` if the route is to be ignored, `Some(None)` after a violation.
pub(super) fn route_action(at: &Field<'_>, proto: &wire::RouteAction) -> Option<Option<RouteAction>> {
    let cluster = match &proto.cluster_specifier {
        Some(Specifier::Cluster(name)) => {
            at.field("cluster").require_text(name).map(|name| ClusterSpecifier::Cluster(name.into()))
        }
        Some(Specifier::WeightedClusters(clusters)) => {
            Some(weighted_clusters(&at.field("weighted_clusters"), clusters))
        }
        // A28: a route with an unsupported cluster specifier is ignored.
        _ => return None,
    };
    let max_stream_duration = proto.max_stream_duration.as_ref();
    let max_stream_duration =
        max_stream_duration.and_then(|proto| max_stream_duration_of(&at.field("max_stream_duration"), proto));
    let at_hash = at.field("hash_policy");
    let hash_policies = proto.hash_policy.iter().enumerate();
    let hash_policies =
        hash_policies.filter_map(|(i, proto)| hash_policy(&at_hash.index(i), proto)).collect();
    let retry_policy =
        proto.retry_policy.as_ref().and_then(|proto| retry_policy(&at.field("retry_policy"), proto));
    // A81: only a trusted server may choose the authority, and only if the gate is open.
    let auto_host_rewrite = at.context().trusted_xds_server
        && at.context().gates.authority_rewrite
        && matches!(
            proto.host_rewrite_specifier,
            Some(HostRewriteSpecifier::AutoHostRewrite(rewrite)) if rewrite.value
        );
    Some(cluster.map(|cluster| RouteAction {
        cluster,
        max_stream_duration,
        hash_policies,
        retry_policy: retry_policy.map(Arc::new),
        auto_host_rewrite,
    }))
}

fn weighted_clusters(at: &Field<'_>, proto: &wire::WeightedCluster) -> ClusterSpecifier {
    let mut total = 0;
    let mut clusters = Vec::with_capacity(proto.clusters.len());
    for (i, proto) in proto.clusters.iter().enumerate() {
        let at = at.field("clusters");
        let at = at.index(i);
        at.field("name").require_text(&proto.name);
        let filter_overrides =
            filter_overrides(&at.field("typed_per_filter_config"), &proto.typed_per_filter_config);
        let weight = at.field("weight").require(proto.weight).map_or(0, |weight| weight.value);
        total += u64::from(weight);
        clusters.push(WeightedCluster { name: proto.name.as_str().into(), weight, filter_overrides });
    }
    if total == 0 {
        at.reject("the weights must not add up to zero");
    }
    if total > u64::from(u32::MAX) {
        at.reject("the weights add up beyond uint32");
    }
    ClusterSpecifier::Weighted(clusters)
}

/// A31: `grpc_timeout_header_max` takes precedence over `max_stream_duration`.
fn max_stream_duration_of(at: &Field<'_>, proto: &wire::route_action::MaxStreamDuration) -> Option<Duration> {
    match (&proto.grpc_timeout_header_max, &proto.max_stream_duration) {
        (Some(proto), _) => duration(&at.field("grpc_timeout_header_max"), proto),
        (None, Some(proto)) => duration(&at.field("max_stream_duration"), proto),
        (None, None) => None,
    }
}

/// A hash policy; `None` if it never produces a hash, or after a violation.
fn hash_policy(at: &Field<'_>, proto: &wire::route_action::HashPolicy) -> Option<HashPolicy> {
    let kind = match &proto.policy_specifier {
        Some(PolicySpecifier::Header(header)) => {
            let at = at.field("header");
            let name = at.field("header_name").require_text(&header.header_name);
            let rewrite = match &header.regex_rewrite {
                Some(rewrite) => Some(header_rewrite(&at.field("regex_rewrite"), rewrite)?),
                None => None,
            };
            HashPolicyKind::Header { name: name?.to_ascii_lowercase(), rewrite }
        }
        Some(PolicySpecifier::FilterState(state)) if state.key == "io.grpc.channel_id" => {
            HashPolicyKind::ChannelId
        }
        // A42: unsupported policies produce no hash.
        _ => return None,
    };
    // A42, A28: binary headers count as absent.
    if matches!(&kind, HashPolicyKind::Header { name, .. } if name.ends_with("-bin")) {
        return None;
    }
    Some(HashPolicy { kind, terminal: proto.terminal })
}

fn header_rewrite(at: &Field<'_>, proto: &RegexMatchAndSubstitute) -> Option<HeaderRewrite> {
    let at_pattern = at.field("pattern");
    let pattern = at_pattern.require(proto.pattern.as_ref())?;
    let at_regex = at_pattern.field("regex");
    let regex = compile(&at_regex, at_regex.require_text(&pattern.regex)?)?;
    let substitution = substitution(&at.field("substitution"), &proto.substitution, regex.captures_len())?;
    Some(HeaderRewrite { regex, substitution })
}

/// Translates a substitution from RE2's notation (`\0` to `\9`, `\\`) to the regex crate's.
fn substitution(at: &Field<'_>, text: &str, groups: usize) -> Option<String> {
    let mut translated = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '$' => translated.push_str("$$"),
            '\\' => match chars.next() {
                Some('\\') => translated.push('\\'),
                Some(digit) if digit.to_digit(10).is_some_and(|group| (group as usize) < groups) => {
                    translated.extend(["${", digit.encode_utf8(&mut [0; 4]), "}"]);
                }
                _ => return at.fail("a backslash must be followed by a backslash or the number of a group"),
            },
            char => translated.push(char),
        }
    }
    Some(translated)
}
