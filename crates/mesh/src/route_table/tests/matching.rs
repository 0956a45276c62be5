//! Paths and headers (gRFC A28).

use super::*;

fn path(text: &str, case_sensitive: bool) -> Route {
    on_path(PathMatcher::Path { path: text.into(), case_sensitive })
}

fn prefix(text: &str, case_sensitive: bool) -> Route {
    on_path(PathMatcher::Prefix { prefix: text.into(), case_sensitive })
}

#[test]
fn a28_paths_and_prefixes() {
    let none = HeaderMap::new();
    assert!(takes(path("/s/m", true), "/s/m", &none));
    assert!(!takes(path("/s/m", true), "/s/m2", &none));
    assert!(!takes(path("/s/m", true), "/S/m", &none));
    assert!(takes(prefix("/s/", true), "/s/m", &none));
    assert!(takes(prefix("", true), "/s/m", &none));
    assert!(!takes(prefix("/s/m/longer", true), "/s/m", &none));
    assert!(!takes(prefix("/S/", true), "/s/m", &none));
}

#[test]
fn a28_case_counts_unless_the_route_says_otherwise() {
    let none = HeaderMap::new();
    assert!(takes(path("/myservice/mymethod", false), "/MyService/MyMethod", &none));
    assert!(takes(prefix("/MYSERVICE/", false), "/MyService/MyMethod", &none));
    assert!(!takes(path("/myservice/other", false), "/MyService/MyMethod", &none));
}

#[test]
fn a28_prefix_inside_a_character_does_not_panic() {
    assert!(!takes(prefix("/é", true), "/\u{e8}", &HeaderMap::new()));
    assert!(!takes(prefix("/a", false), "/\u{e8}", &HeaderMap::new()));
}

#[test]
fn a28_regex_matches_the_whole_path() {
    let none = HeaderMap::new();
    let matches = |pattern: &str, path: &str| takes(on_path(PathMatcher::Regex(whole(pattern))), path, &none);
    assert!(matches("/s/m[0-9]", "/s/m1"));
    assert!(!matches("/s/m[0-9]", "/s/m12"));
    assert!(!matches("s/m[0-9]", "/s/m1"));
    assert!(matches("/a|/ab", "/ab"), "the longer alternative counts, too");
    assert!(!matches("/a|/ab", "/abc"));
    assert!(!matches("(?m)^/s/m$", "/s/m\n"));
    assert!(matches("/#", "/#"));
}

#[test]
fn a28_header_values() {
    let matches = |kind, value| takes(on_header("h", string(kind), false), "/", &headers(&[("h", value)]));
    assert!(matches(StringMatchKind::Exact("v".into()), "v"));
    assert!(!matches(StringMatchKind::Exact("v".into()), "V"));
    assert!(matches(StringMatchKind::Prefix("v".into()), "vw"));
    assert!(!matches(StringMatchKind::Prefix("vwx".into()), "vw"));
    assert!(matches(StringMatchKind::Suffix("w".into()), "vw"));
    assert!(!matches(StringMatchKind::Suffix("uvw".into()), "vw"));
    assert!(matches(StringMatchKind::Contains("w".into()), "vwx"));
    assert!(!matches(StringMatchKind::Contains("W".into()), "vwx"));
    assert!(matches(StringMatchKind::Regex(whole("v+")), "vvv"));
    assert!(!matches(StringMatchKind::Regex(whole("v+")), "vvw"));
}

#[test]
fn a63_string_matchers_may_ignore_case() {
    let matches = |kind, value| {
        let string = HeaderValueMatcher::String(StringMatcher { kind, ignore_case: true });
        takes(on_header("h", string, false), "/", &headers(&[("h", value)]))
    };
    assert!(matches(StringMatchKind::Exact("VALUE".into()), "value"));
    assert!(matches(StringMatchKind::Prefix("VAL".into()), "value"));
    assert!(matches(StringMatchKind::Suffix("LUE".into()), "value"));
    assert!(matches(StringMatchKind::Contains("ALU".into()), "value"));
    assert!(matches(StringMatchKind::Contains(String::new()), "value"));
    assert!(!matches(StringMatchKind::Contains("longer than it".into()), "value"));
}

#[test]
fn a28_range_is_half_open() {
    let in_range = |value| {
        takes(
            on_header("h", HeaderValueMatcher::Range { start: -1, end: 10 }, false),
            "/",
            &headers(&[("h", value)]),
        )
    };
    assert!(in_range("-1") && in_range("9"));
    assert!(!in_range("10") && !in_range("-2") && !in_range("x") && !in_range("1.5") && !in_range(""));
    assert!(!in_range("99999999999999999999"));
}

#[test]
fn a28_presence_and_inversion() {
    let (with, without) = (headers(&[("h", "v")]), HeaderMap::new());
    for (present, invert, with_matches) in
        [(true, false, true), (true, true, false), (false, false, false), (false, true, true)]
    {
        let route = || on_header("h", HeaderValueMatcher::Present(present), invert);
        assert_eq!(takes(route(), "/", &with), with_matches, "{present} {invert}");
        assert_eq!(takes(route(), "/", &without), !with_matches, "{present} {invert}");
    }
    let not_v = || on_header("h", string(StringMatchKind::Exact("v".into())), true);
    assert!(!takes(not_v(), "/", &with));
    assert!(takes(not_v(), "/", &headers(&[("h", "w")])));
    assert!(!takes(not_v(), "/", &without), "a header that is not there has no value to differ");
}

#[test]
fn a28_several_values_are_joined_by_commas() {
    let joined = || on_header("h", string(StringMatchKind::Exact("a,b".into())), false);
    assert!(takes(joined(), "/", &headers(&[("h", "a"), ("h", "b")])));
    assert!(takes(joined(), "/", &headers(&[("h", "a,b")])));
    assert!(!takes(joined(), "/", &headers(&[("h", "b"), ("h", "a")])));
}

#[test]
fn a28_binary_and_transport_headers_are_not_seen() {
    for name in ["h-bin", "te", "user-agent", "grpc-timeout"] {
        let mut all = HeaderMap::new();
        all.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        assert!(!takes(on_header(name, HeaderValueMatcher::Present(true), false), "/", &all), "{name}");
        assert!(takes(on_header(name, HeaderValueMatcher::Present(false), false), "/", &all), "{name}");
    }
}

#[test]
fn a28_content_type_is_always_grpc() {
    let is = |value: &str| on_header("content-type", string(StringMatchKind::Exact(value.into())), false);
    assert!(takes(is("application/grpc"), "/", &HeaderMap::new()));
    assert!(!takes(is("text/plain"), "/", &headers(&[("content-type", "text/plain")])));
}

#[test]
fn header_names_match_in_any_case_and_invalid_ones_never() {
    assert!(takes(on_header("H", HeaderValueMatcher::Present(true), false), "/", &headers(&[("h", "v")])));
    assert!(!takes(
        on_header("no such name", HeaderValueMatcher::Present(true), false),
        "/",
        &headers(&[("h", "v")])
    ));
}

#[test]
fn non_text_header_value_does_not_panic() {
    let mut odd = HeaderMap::new();
    odd.insert("h", HeaderValue::from_bytes(&[0xff, b'a']).expect("opaque bytes are allowed"));
    assert!(takes(on_header("h", HeaderValueMatcher::Present(true), false), "/", &odd));
    assert!(!takes(on_header("h", string(StringMatchKind::Exact("a".into())), false), "/", &odd));
}

#[test]
fn a28_every_part_must_match() {
    let mut route = on_header("h", HeaderValueMatcher::Present(true), false);
    let second = HeaderMatcher { name: "g".into(), value: HeaderValueMatcher::Present(true), invert: false };
    route.matcher.headers.push(second);
    route.matcher.path = PathMatcher::Path { path: "/s/m".into(), case_sensitive: true };
    let both = headers(&[("h", "v"), ("g", "v")]);
    assert!(takes(route.clone(), "/s/m", &both));
    assert!(!takes(route.clone(), "/s/n", &both));
    assert!(!takes(route, "/s/m", &headers(&[("h", "v")])));
}
