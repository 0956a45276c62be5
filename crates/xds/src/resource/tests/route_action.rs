use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use envoy_types::pb::google::protobuf::{self, BoolValue, UInt32Value};
use proxyless_sans_io::values::Code;
use wire::retry_policy::RetryBackOff;
use wire::route_action::hash_policy::{self, PolicySpecifier};
use wire::route_action::{ClusterSpecifier as Specifier, HashPolicy as WireHashPolicy, MaxStreamDuration};
use wire::weighted_cluster::ClusterWeight;

use super::builders::{millis, route_configuration, routes_with_action, seconds};
use super::{DecodeContext, accepts, as_routes, decode_message_with, rejects};
use crate::resource::{ClusterSpecifier, HashPolicy, HashPolicyKind, RetryPolicy, RouteAction};

fn accepted(change: impl FnOnce(&mut wire::RouteAction)) -> RouteAction {
    let routes = as_routes(accepts(&routes_with_action(change)));
    routes.virtual_hosts[0].routes[0].action.clone().expect("an action")
}

#[track_caller]
fn rejected(change: impl FnOnce(&mut wire::RouteAction), path: &str, why: &str) {
    let path = format!("virtual_hosts[0].routes[0].route.{path}");
    rejects(&routes_with_action(change), &path, why);
}

fn weighted(clusters: &[(&str, Option<u32>)]) -> impl FnOnce(&mut wire::RouteAction) {
    let clusters = clusters.iter().map(|(name, weight)| ClusterWeight {
        name: (*name).into(),
        weight: weight.map(|value| UInt32Value { value }),
        ..Default::default()
    });
    let clusters = wire::WeightedCluster { clusters: clusters.collect(), ..Default::default() };
    |action| action.cluster_specifier = Some(Specifier::WeightedClusters(clusters))
}

#[test]
fn a28_a_cluster_must_have_a_name() {
    rejected(
        |action| action.cluster_specifier = Some(Specifier::Cluster(String::new())),
        "cluster",
        "must not be empty",
    );
}

#[test]
fn a28_weighted_clusters_are_kept_in_order() {
    let action = accepted(weighted(&[("b", Some(1)), ("a", Some(0)), ("b", Some(u32::MAX - 1))]));
    let ClusterSpecifier::Weighted(clusters) = action.cluster else { panic!("{action:?}") };
    let clusters: Vec<_> = clusters.iter().map(|cluster| (&*cluster.name, cluster.weight)).collect();
    assert_eq!(clusters, [("b", 1), ("a", 0), ("b", u32::MAX - 1)]);
}

#[test]
fn a28_weighted_clusters_need_names_and_weights() {
    rejected(
        weighted(&[("a", Some(1)), ("", Some(1))]),
        "weighted_clusters.clusters[1].name",
        "must not be empty",
    );
    rejected(weighted(&[("a", Some(1)), ("b", None)]), "weighted_clusters.clusters[1].weight", "must be set");
}

#[test]
fn a28_weights_must_not_add_up_to_zero() {
    rejected(weighted(&[]), "weighted_clusters", "must not add up to zero");
    rejected(weighted(&[("a", Some(0))]), "weighted_clusters", "must not add up to zero");
}

#[test]
fn a28_weights_must_not_add_up_beyond_uint32() {
    let clusters = weighted(&[("a", Some(u32::MAX)), ("b", Some(1))]);
    rejected(clusters, "weighted_clusters", "add up beyond uint32");
}

#[test]
fn a31_grpc_timeout_header_max_counts_first() {
    let limit = |max, header_max| {
        let durations = MaxStreamDuration {
            max_stream_duration: max,
            grpc_timeout_header_max: header_max,
            ..Default::default()
        };
        accepted(|action| action.max_stream_duration = Some(durations)).max_stream_duration
    };
    assert_eq!(limit(None, None), None);
    assert_eq!(limit(Some(seconds(3)), None), Some(Duration::from_secs(3)));
    assert_eq!(limit(Some(seconds(3)), Some(seconds(5))), Some(Duration::from_secs(5)));
    assert_eq!(limit(Some(seconds(3)), Some(seconds(0))), Some(Duration::ZERO));
    assert_eq!(accepted(|_| {}).max_stream_duration, None);
}

#[test]
fn a31_durations_must_be_in_range() {
    let limit = |max, header_max| MaxStreamDuration {
        max_stream_duration: max,
        grpc_timeout_header_max: header_max,
        ..Default::default()
    };
    rejected(
        |action| action.max_stream_duration = Some(limit(Some(seconds(315_576_000_001)), None)),
        "max_stream_duration.max_stream_duration.seconds",
        "is not in the range",
    );
    rejected(
        |action| {
            let bad = protobuf::Duration { seconds: 0, nanos: 1_000_000_000 };
            action.max_stream_duration = Some(limit(None, Some(bad)));
        },
        "max_stream_duration.grpc_timeout_header_max.nanos",
        "is not in the range",
    );
}

fn header_policy(name: &str, rewrite: Option<(&str, &str)>) -> WireHashPolicy {
    let regex_rewrite = rewrite.map(|(regex, substitution)| RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher { regex: regex.into(), ..Default::default() }),
        substitution: substitution.into(),
    });
    let header = hash_policy::Header { header_name: name.into(), regex_rewrite };
    WireHashPolicy { policy_specifier: Some(PolicySpecifier::Header(header)), ..Default::default() }
}

fn filter_state(key: &str) -> WireHashPolicy {
    let state = hash_policy::FilterState { key: key.into() };
    WireHashPolicy { policy_specifier: Some(PolicySpecifier::FilterState(state)), ..Default::default() }
}

fn hash_policies(policies: &[WireHashPolicy]) -> Vec<HashPolicy> {
    accepted(|action| action.hash_policy = policies.to_vec()).hash_policies
}

#[test]
fn a42_headers_and_the_channel_are_hashed() {
    let terminal = WireHashPolicy { terminal: true, ..filter_state("io.grpc.channel_id") };
    let policies = hash_policies(&[header_policy("X-User", None), terminal]);
    assert_eq!(
        policies,
        [
            HashPolicy {
                kind: HashPolicyKind::Header { name: "x-user".into(), rewrite: None },
                terminal: false,
            },
            HashPolicy { kind: HashPolicyKind::ChannelId, terminal: true },
        ]
    );
}

#[test]
fn a42_policies_that_never_give_a_hash_are_left_out() {
    let of = |specifier| WireHashPolicy { policy_specifier: Some(specifier), terminal: true };
    let policies = hash_policies(&[
        of(PolicySpecifier::Cookie(Default::default())),
        of(PolicySpecifier::ConnectionProperties(Default::default())),
        of(PolicySpecifier::QueryParameter(Default::default())),
        filter_state("other"),
        header_policy("X-User-Bin", None),
        WireHashPolicy::default(),
    ]);
    assert!(policies.is_empty(), "{policies:?}");
}

#[test]
fn a42_a_header_needs_a_name() {
    rejected(
        |action| action.hash_policy = vec![filter_state("x"), header_policy("", None)],
        "hash_policy[1].header.header_name",
        "must not be empty",
    );
}

#[test]
fn a42_a_rewrite_is_translated() {
    let rewritten = |regex, substitution, value: &str| {
        let policies = hash_policies(&[header_policy("a", Some((regex, substitution)))]);
        let HashPolicyKind::Header { rewrite: Some(rewrite), .. } = &policies[0].kind else {
            panic!("{policies:?}");
        };
        rewrite.regex.replace_all(value, rewrite.substitution.as_str()).into_owned()
    };
    assert_eq!(rewritten("a(b+)", r"<\1|\0>", "abb-ab"), "<bb|abb>-<b|ab>");
    assert_eq!(rewritten("a", r"$1\\$0", "a"), r"$1\$0");
    // The digit is the group, whatever follows it.
    assert_eq!(rewritten("(a)", r"\10", "a"), "a0");
}

#[test]
fn a42_a_bad_rewrite_is_rejected() {
    for substitution in [r"\2", r"\", r"\x"] {
        rejected(
            |action| action.hash_policy = vec![header_policy("a", Some(("(a)", substitution)))],
            "hash_policy[0].header.regex_rewrite.substitution",
            "a backslash must be followed by",
        );
    }
    for (regex, why) in [("(", "is not a valid regex"), ("", "must not be empty")] {
        rejected(
            |action| action.hash_policy = vec![header_policy("a", Some((regex, "")))],
            "hash_policy[0].header.regex_rewrite.pattern.regex",
            why,
        );
    }
    rejected(
        |action| {
            let header = hash_policy::Header {
                header_name: "a".into(),
                regex_rewrite: Some(RegexMatchAndSubstitute::default()),
            };
            let policy_specifier = Some(PolicySpecifier::Header(header));
            action.hash_policy = vec![WireHashPolicy { policy_specifier, terminal: false }];
        },
        "hash_policy[0].header.regex_rewrite.pattern",
        "must be set",
    );
}

fn retry(on: &str, retries: Option<u32>, back_off: Option<RetryBackOff>) -> wire::RetryPolicy {
    wire::RetryPolicy {
        retry_on: on.into(),
        num_retries: retries.map(|value| UInt32Value { value }),
        retry_back_off: back_off,
        ..Default::default()
    }
}

fn back_off(base: Option<protobuf::Duration>, max: Option<protobuf::Duration>) -> Option<RetryBackOff> {
    Some(RetryBackOff { base_interval: base, max_interval: max })
}

fn accepted_retry(policy: wire::RetryPolicy) -> RetryPolicy {
    accepted(|action| action.retry_policy = Some(policy))
        .retry_policy
        .as_deref()
        .cloned()
        .expect("a retry policy")
}

#[test]
fn a44_known_conditions_become_codes() {
    let all = "unavailable,5xx,internal, cancelled,deadline-exceeded,resource-exhausted,internal";
    assert_eq!(
        accepted_retry(retry(all, None, None)).codes.iter().map(|&code| code as i32).collect::<Vec<_>>(),
        [1, 4, 8, 13, 14]
    );
    // Without codes it still stands in the way of the virtual host's policy.
    assert!(accepted_retry(retry("5xx,gateway-error", None, None)).codes.is_empty());
}

#[test]
fn a44_the_defaults_are_envoys() {
    let policy = accepted_retry(retry("unavailable", None, None));
    assert_eq!(
        policy,
        RetryPolicy {
            codes: vec![Code::Unavailable],
            num_retries: 1,
            base_interval: Duration::from_millis(25),
            max_interval: Duration::from_millis(250),
        }
    );
}

#[test]
fn a44_retries_are_one_to_four() {
    assert_eq!(accepted_retry(retry("", Some(3), None)).num_retries, 3);
    assert_eq!(accepted_retry(retry("", Some(100), None)).num_retries, 4);
    let policy = retry("unavailable", Some(0), None);
    rejected(|action| action.retry_policy = Some(policy), "retry_policy.num_retries", "must not be zero");
}

#[test]
fn a44_intervals_are_read() {
    let intervals = |base, max| {
        let policy = accepted_retry(retry("", None, back_off(Some(base), max)));
        (policy.base_interval.as_micros(), policy.max_interval.as_micros())
    };
    assert_eq!(intervals(millis(30), Some(millis(40))), (30_000, 40_000));
    assert_eq!(intervals(millis(30), None), (30_000, 300_000));
    // Shorter than a millisecond counts as one.
    let nanos = |nanos| protobuf::Duration { seconds: 0, nanos };
    assert_eq!(intervals(nanos(5), Some(nanos(6))), (1000, 1000));
}

#[test]
fn a44_bad_intervals_are_rejected() {
    for (back_off, path, why) in [
        (back_off(None, Some(millis(1))), "base_interval", "must be set"),
        (back_off(Some(millis(0)), None), "base_interval", "must be longer than zero"),
        (back_off(Some(millis(1)), Some(millis(0))), "max_interval", "must be longer than zero"),
        (back_off(Some(millis(2)), Some(millis(1))), "max_interval", "must not be shorter"),
        (back_off(Some(seconds(-1)), None), "base_interval.seconds", "is not in the range"),
    ] {
        let policy = retry("unavailable", None, back_off);
        rejected(
            |action| action.retry_policy = Some(policy),
            &format!("retry_policy.retry_back_off.{path}"),
            why,
        );
    }
}

#[test]
fn a44_a_virtual_host_may_have_a_retry_policy() {
    let mut config = route_configuration();
    config.virtual_hosts[0].retry_policy = Some(retry("internal", Some(2), None));
    let routes = as_routes(accepts(&config));
    let policy = routes.virtual_hosts[0].retry_policy.as_ref().expect("a policy");
    assert_eq!((policy.codes.as_slice(), policy.num_retries), (&[Code::Internal][..], 2));
    assert_eq!(routes.virtual_hosts[0].routes[0].action.as_ref().expect("an action").retry_policy, None);

    config.virtual_hosts[0].retry_policy = Some(retry("internal", Some(0), None));
    rejects(&config, "virtual_hosts[0].retry_policy.num_retries", "must not be zero");
}

#[test]
fn a81_only_a_trusted_server_may_ask_for_host_rewriting() {
    use wire::route_action::HostRewriteSpecifier::AutoHostRewrite;
    for (trusted, gate, value, expected) in [
        (true, true, true, true),
        (false, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
    ] {
        let config = routes_with_action(|action| {
            action.host_rewrite_specifier = Some(AutoHostRewrite(BoolValue { value }));
        });
        let mut cx = DecodeContext { trusted_xds_server: trusted, ..Default::default() };
        cx.gates.authority_rewrite = gate;
        let routes = as_routes(decode_message_with(&config, &cx).expect("valid"));
        let action = routes.virtual_hosts[0].routes[0].action.as_ref().expect("an action");
        assert_eq!(action.auto_host_rewrite, expected);
    }
}
