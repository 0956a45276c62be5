use envoy_types::pb::envoy::config::route::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher as WireStringMatcher};
use envoy_types::pb::envoy::r#type::v3::Int64Range;
use envoy_types::pb::google::protobuf::BoolValue;
use wire::header_matcher::HeaderMatchSpecifier;
use wire::route_match::PathSpecifier;

use super::builders::routes_with_match;
use super::{accepts, as_routes, decode_message_with, rejects};
use crate::resource::{DecodeContext, HeaderMatcher, PathMatcher};

const MATCH: &str = "virtual_hosts[0].routes[0].match";

fn regex(regex: &str) -> RegexMatcher {
    RegexMatcher { regex: regex.into(), ..Default::default() }
}

fn routes_with_path(specifier: PathSpecifier, case_sensitive: Option<bool>) -> wire::RouteConfiguration {
    routes_with_match(|matcher| {
        matcher.path_specifier = Some(specifier);
        matcher.case_sensitive = case_sensitive.map(|value| BoolValue { value });
    })
}

fn path_matcher(specifier: PathSpecifier, case_sensitive: Option<bool>) -> PathMatcher {
    let routes = as_routes(accepts(&routes_with_path(specifier, case_sensitive)));
    routes.virtual_hosts[0].routes[0].matcher.path.clone()
}

fn routes_with_header(header: wire::HeaderMatcher) -> wire::RouteConfiguration {
    routes_with_match(|matcher| matcher.headers = vec![header])
}

fn header(specifier: HeaderMatchSpecifier) -> wire::HeaderMatcher {
    wire::HeaderMatcher {
        name: "X-Header".into(),
        header_match_specifier: Some(specifier),
        ..Default::default()
    }
}

fn accepted(header: wire::HeaderMatcher) -> HeaderMatcher {
    as_routes(accepts(&routes_with_header(header))).virtual_hosts[0].routes[0].matcher.headers[0].clone()
}

fn string_match(pattern: MatchPattern, ignore_case: bool) -> HeaderMatcher {
    let matcher = WireStringMatcher { ignore_case, match_pattern: Some(pattern) };
    accepted(header(HeaderMatchSpecifier::StringMatch(matcher)))
}

#[test]
fn a28_a_prefix_matches() {
    let prefix = path_matcher(PathSpecifier::Prefix("/a.B".into()), None);
    assert!(prefix.matches("/a.B/m") && prefix.matches("/a.Bc/m") && prefix.matches("/a.B"));
    assert!(!prefix.matches("/a.b/m") && !prefix.matches("/a.") && !prefix.matches(""));
    assert!(path_matcher(PathSpecifier::Prefix(String::new()), None).matches("/any/thing"));
}

#[test]
fn a28_a_path_matches() {
    let path = path_matcher(PathSpecifier::Path("/a.B/m".into()), Some(true));
    assert!(path.matches("/a.B/m"));
    assert!(!path.matches("/a.B/mm") && !path.matches("/a.b/m"));
}

#[test]
fn a28_case_is_ignored_if_the_route_says_so() {
    let prefix = path_matcher(PathSpecifier::Prefix("/a.B".into()), Some(false));
    assert!(prefix.matches("/A.b/m") && !prefix.matches("/A.") && !prefix.matches("/x.b/m"));
    // A prefix that would cut a character in two.
    assert!(!prefix.matches("/a.\u{e9}"));
    let path = path_matcher(PathSpecifier::Path("/a.B/m".into()), Some(false));
    assert!(path.matches("/A.b/M") && !path.matches("/A.b/Mm"));
}

#[test]
fn a28_a_regex_must_match_the_whole_path() {
    let matcher = path_matcher(PathSpecifier::SafeRegex(regex("/a/b|/c")), Some(false));
    assert!(matcher.matches("/a/b") && matcher.matches("/c"));
    assert!(!matcher.matches("/a/bb") && !matcher.matches("x/c") && !matcher.matches("/c\n"));
    // Case counts in a regex, whatever the route says.
    assert!(!matcher.matches("/A/B"));
}

#[test]
fn a28_quoted_text_of_re2_is_literal() {
    for (pattern, path, matches) in [
        (r"\Q/a.b/c\E", "/a.b/c", true),
        (r"\Q/a.b/c\E", "/axb/c", false),
        (r"/\Qa.b\E/.*", "/a.b/c", true),
        (r"\Q/a.b/c", "/a.b/c", true),
        (r"\Q/a.b/c", "/a.b/c)$", false),
    ] {
        let matcher = path_matcher(PathSpecifier::SafeRegex(regex(pattern)), None);
        assert_eq!(matcher.matches(path), matches, "{pattern} {path}");
    }
    // RE2 has no quotation inside of a class.
    let path = "virtual_hosts[0].routes[0].match.safe_regex.regex";
    rejects(
        &routes_with_path(PathSpecifier::SafeRegex(regex(r"[\Q.\E]")), None),
        path,
        "is not a valid regex",
    );
}

#[test]
fn a28_octal_escapes_of_re2_are_characters() {
    for (pattern, path, matches) in [
        (r"/\141\056b", "/a.b", true),
        (r"/\141\056b", "/axb", false),
        (r"/[\141-\143]+", "/abc", true),
        (r"/[^\141-\143]+", "/abc", false),
    ] {
        let matcher = path_matcher(PathSpecifier::SafeRegex(regex(pattern)), None);
        assert_eq!(matcher.matches(path), matches, "{pattern} {path}");
    }
}

#[test]
fn a28_a_bad_regex_is_rejected() {
    let path = "virtual_hosts[0].routes[0].match.safe_regex.regex";
    for bad in ["(", "a)|(b", "*", r"\1", r"(a)\1", r"\8", "(?=a)"] {
        rejects(&routes_with_path(PathSpecifier::SafeRegex(regex(bad)), None), path, "is not a valid regex");
    }
}

#[test]
fn a28_re2_syntax_that_is_not_supported_is_rejected() {
    let path = "virtual_hosts[0].routes[0].match.safe_regex.regex";
    for lacking in [r"/\C", "/{id}", "/[[]"] {
        rejects(
            &routes_with_path(PathSpecifier::SafeRegex(regex(lacking)), None),
            path,
            "is not a valid regex",
        );
    }
}

#[test]
fn a28_a_huge_regex_is_rejected() {
    let huge = regex("((((x{1000}){1000}){1000}){1000})");
    rejects(
        &routes_with_path(PathSpecifier::SafeRegex(huge), None),
        "virtual_hosts[0].routes[0].match.safe_regex.regex",
        "is a regex of more than 1048576 bytes when compiled, the limit",
    );
}

#[test]
fn a28_regexes_of_a_resource_have_a_budget() {
    let mut cx = DecodeContext::default();
    let pattern = |i: usize| PathSpecifier::SafeRegex(regex(&format!("/service-{i}/[a-z]+")));
    let mut routes = routes_with_path(pattern(0), None);
    let host = &mut routes.virtual_hosts[0];
    let one = host.routes[0].clone();
    host.routes = (0..20)
        .map(|i| {
            let mut route = one.clone();
            route.r#match.get_or_insert_default().path_specifier = Some(pattern(i));
            route
        })
        .collect();
    assert!(decode_message_with(&routes, &cx).is_ok());
    cx.limits.regex_bytes_per_resource = 18 * (16 << 10) + 100;
    let found = decode_message_with(&routes, &cx).expect_err("too large together");
    let at = |i: usize| format!("virtual_hosts[0].routes[{i}].match.safe_regex.regex");
    assert_eq!(found.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), [at(18), at(19)]);
    for (_, why) in &found {
        assert_eq!(why, "the regexes of the resource have more than 295012 bytes when compiled, the limit");
    }
}

#[test]
fn a28_costly_regexes_are_rejected_before_they_are_compiled() {
    let path = "virtual_hosts[0].routes[0].match.safe_regex.regex";
    for costly in [r"\w{200}", r"\pL{1000}", "(?i)[^a]{10000}"] {
        let routes = routes_with_path(PathSpecifier::SafeRegex(regex(costly)), None);
        rejects(&routes, path, "when compiled, the limit");
    }
    // Real routes are far below.
    for common in [r"/\w+/[^/]+/.*", r"(?i)/[a-z0-9-]{1,63}\.[a-z]{2,}/\d{1,10}", r"\w{5,20}"] {
        accepts(&routes_with_path(PathSpecifier::SafeRegex(regex(common)), None));
    }
}

#[test]
fn a28_a_regex_is_linear() {
    // Would take longer than the universe has by backtracking.
    let matcher = path_matcher(PathSpecifier::SafeRegex(regex("(a*)*b")), None);
    assert!(!matcher.matches(&"a".repeat(10_000)));
}

#[test]
fn a28_a_path_is_required() {
    rejects(
        &routes_with_match(|matcher| matcher.path_specifier = None),
        MATCH,
        "must have prefix, path or safe_regex",
    );
    for other in [
        PathSpecifier::ConnectMatcher(wire::route_match::ConnectMatcher {}),
        PathSpecifier::PathSeparatedPrefix("/a".into()),
    ] {
        rejects(&routes_with_path(other, None), MATCH, "must have prefix, path or safe_regex");
    }
}

#[test]
fn a28_header_names_are_lower_case_and_not_empty() {
    assert_eq!(accepted(header(HeaderMatchSpecifier::PresentMatch(true))).name, "x-header");
    let nameless =
        wire::HeaderMatcher { name: String::new(), ..header(HeaderMatchSpecifier::PresentMatch(true)) };
    rejects(
        &routes_with_header(nameless),
        "virtual_hosts[0].routes[0].match.headers[0].name",
        "must not be empty",
    );
}

#[test]
fn a28_a_header_matcher_needs_a_specifier() {
    let header = wire::HeaderMatcher { name: "a".into(), ..Default::default() };
    rejects(
        &routes_with_header(header),
        "virtual_hosts[0].routes[0].match.headers[0]",
        "must say how the header is matched",
    );
}

#[test]
#[allow(deprecated)]
fn a28_the_older_string_matches_work() {
    use HeaderMatchSpecifier::{ContainsMatch, ExactMatch, PrefixMatch, SafeRegexMatch, SuffixMatch};
    for (specifier, good, bad) in [
        (ExactMatch("ab".into()), "ab", "abc"),
        (PrefixMatch("ab".into()), "abc", "cab"),
        (SuffixMatch("ab".into()), "cab", "abc"),
        (ContainsMatch("ab".into()), "cabc", "a b"),
        (SafeRegexMatch(regex("a+b")), "aab", "caab"),
    ] {
        let matcher = accepted(header(specifier));
        assert!(matcher.matches(Some(good)), "{matcher:?} {good}");
        assert!(!matcher.matches(Some(bad)), "{matcher:?} {bad}");
        assert!(!matcher.matches(Some(&good.to_uppercase())), "{matcher:?} ignores case");
        assert!(!matcher.matches(None), "{matcher:?} matches an absent header");
    }
    rejects(
        &routes_with_header(header(SafeRegexMatch(regex("(")))),
        "virtual_hosts[0].routes[0].match.headers[0].safe_regex_match.regex",
        "is not a valid regex",
    );
}

#[test]
fn a63_string_match_works() {
    for (pattern, good, bad) in [
        (MatchPattern::Exact("aB".into()), "aB", "abc"),
        (MatchPattern::Prefix("aB".into()), "aBc", "caB"),
        (MatchPattern::Suffix("aB".into()), "caB", "aBc"),
        (MatchPattern::Contains("aB".into()), "caBc", "a B"),
        (MatchPattern::SafeRegex(regex("a+B")), "aaB", "caaB"),
    ] {
        let matcher = string_match(pattern, false);
        assert!(matcher.matches(Some(good)), "{matcher:?} {good}");
        assert!(!matcher.matches(Some(bad)), "{matcher:?} {bad}");
        assert!(!matcher.matches(Some(&good.to_lowercase())), "{matcher:?} ignores case");
    }
}

#[test]
fn a63_ignore_case_works_except_for_a_regex() {
    for (pattern, good, bad) in [
        (MatchPattern::Exact("aB".into()), "Ab", "Abc"),
        (MatchPattern::Prefix("aB".into()), "Abc", "cAb"),
        (MatchPattern::Suffix("aB".into()), "cAb", "Abc"),
        (MatchPattern::Contains("aB".into()), "cAbc", "A b"),
        (MatchPattern::Contains(String::new()), "", "-"),
    ] {
        let matcher = string_match(pattern, true);
        assert!(matcher.matches(Some(good)), "{matcher:?} {good}");
        assert_eq!(matcher.matches(Some(bad)), bad == "-", "{matcher:?} {bad}");
        assert_eq!(matcher.matches(Some("b")), bad == "-", "{matcher:?} shorter");
    }
    let matcher = string_match(MatchPattern::SafeRegex(regex("ab")), true);
    assert!(matcher.matches(Some("ab")) && !matcher.matches(Some("AB")));
}

#[test]
fn a63_a_string_match_without_a_known_pattern_is_rejected() {
    for match_pattern in [None, Some(MatchPattern::Custom(Default::default()))] {
        let matcher = WireStringMatcher { match_pattern, ..Default::default() };
        rejects(
            &routes_with_header(header(HeaderMatchSpecifier::StringMatch(matcher))),
            "virtual_hosts[0].routes[0].match.headers[0].string_match",
            "must have exact",
        );
    }
    let matcher =
        WireStringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex("["))), ..Default::default() };
    rejects(
        &routes_with_header(header(HeaderMatchSpecifier::StringMatch(matcher))),
        "virtual_hosts[0].routes[0].match.headers[0].string_match.safe_regex.regex",
        "is not a valid regex",
    );
}

#[test]
fn a28_a_range_has_its_start_but_not_its_end() {
    let range = |start, end| header(HeaderMatchSpecifier::RangeMatch(Int64Range { start, end }));
    let matcher = accepted(range(-5, 10));
    for good in ["-5", "0", "9", "+3", " 7 "] {
        assert!(matcher.matches(Some(good)), "{good}");
    }
    for bad in ["-6", "10", "", "x", "1x", "1.0", "99999999999999999999"] {
        assert!(!matcher.matches(Some(bad)), "{bad}");
    }
    assert!(!matcher.matches(None));
    assert!(!accepted(range(1, 1)).matches(Some("1")));
    rejects(
        &routes_with_header(range(2, 1)),
        "virtual_hosts[0].routes[0].match.headers[0].range_match",
        "must not be smaller",
    );
}

#[test]
fn a28_present_match_asks_for_presence_or_absence() {
    let present = accepted(header(HeaderMatchSpecifier::PresentMatch(true)));
    assert!(present.matches(Some("")) && !present.matches(None));
    let absent = accepted(header(HeaderMatchSpecifier::PresentMatch(false)));
    assert!(!absent.matches(Some("")) && absent.matches(None));
}

#[test]
fn a28_invert_match_turns_the_outcome_round() {
    let invert = |header| accepted(wire::HeaderMatcher { invert_match: true, ..header });
    let present = invert(header(HeaderMatchSpecifier::PresentMatch(true)));
    assert!(!present.matches(Some("")) && present.matches(None));
    let exact =
        WireStringMatcher { match_pattern: Some(MatchPattern::Exact("a".into())), ..Default::default() };
    let exact = invert(header(HeaderMatchSpecifier::StringMatch(exact)));
    assert!(!exact.matches(Some("a")) && exact.matches(Some("b")));
    // An absent header has no value to compare.
    assert!(!exact.matches(None));
}

#[test]
fn a28_binary_headers_count_as_absent() {
    let binary = |present| {
        let header = header(HeaderMatchSpecifier::PresentMatch(present));
        accepted(wire::HeaderMatcher { name: "Trace-Bin".into(), ..header })
    };
    assert!(!binary(true).matches(Some("AAA=")));
    assert!(binary(false).matches(Some("AAA=")));
}

#[test]
fn matchers_compare_by_their_patterns() {
    let path = |pattern| path_matcher(PathSpecifier::SafeRegex(regex(pattern)), None);
    assert_eq!(path("a"), path("a"));
    assert_ne!(path("a"), path("b"));
    let prefix = |case| path_matcher(PathSpecifier::Prefix("/a".into()), Some(case));
    assert_eq!(prefix(true), prefix(true));
    assert_ne!(prefix(true), prefix(false));
    let string = |pattern: &str, case| string_match(MatchPattern::Exact(pattern.into()), case);
    assert_eq!(string("a", true), string("a", true));
    assert_ne!(string("a", true), string("a", false));
    assert_ne!(string("a", true), string("b", true));
}
