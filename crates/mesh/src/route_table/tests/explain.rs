//! The reasons for a route.

use super::*;

#[test]
fn a28_the_explanation_chooses_as_rpcs_do_and_names_each_mismatch() {
    let mut fraction = to("f");
    fraction.matcher.fraction_per_million = Some(300_000);
    let routes = vec![
        on_path(PathMatcher::Path { path: "/s/other".into(), case_sensitive: true }),
        on_header("h", string(StringMatchKind::Exact("v".into())), false),
        on_header("x-bin", string(StringMatchKind::Exact("v".into())), false),
        fraction,
        to("last"),
        to("never"),
    ];
    let table = table(routes);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..32 {
        let headers = headers(&[("h", "w"), ("x-bin", "v")]);
        let selected = table.select("/s/m", &headers, &mut Rng::new(seed)).expect("a route");
        let (verdicts, explained) = table.explain("/s/m", &headers, &mut Rng::new(seed));
        let chosen = explained.expect("a route").cluster.name();
        assert_eq!(chosen, selected.cluster.name(), "the same draws give the same route");
        let why: Vec<_> = verdicts.iter().map(|verdict| (verdict.matched, verdict.why.as_str())).collect();
        let first = [
            (false, "the path is /s/m"),
            (false, "h is \"w\""),
            (false, "the request has no header x-bin that routes can see"),
        ];
        let last: &[_] = match &**chosen {
            "f" => &[(true, "the path matches; it takes 30 % of RPCs, and this one")],
            _ => &[(false, "it takes 30 % of RPCs, and not this one"), (true, "the path matches")],
        };
        assert_eq!(why, [&first[..], last].concat());
        seen.insert(chosen.to_string());
    }
    assert_eq!(seen.len(), 2, "both draws occurred");
}

#[test]
fn a28_without_a_match_all_routes_have_a_reason() {
    let table = table(vec![on_header("h", HeaderValueMatcher::Present(true), false)]);
    let (verdicts, selected) = table.explain("/s/m", &HeaderMap::new(), &mut Rng::new(1));
    assert!(matches!(selected, Err(RouteError::NoMatch { .. })));
    assert_eq!((verdicts.len(), verdicts[0].matched), (1, false));
}

#[test]
fn a36_a_route_that_does_not_forward_is_the_one_that_matched() {
    let mut route = to("c");
    route.action = None;
    let table = table(vec![route]);
    let (verdicts, selected) = table.explain("/s/m", &HeaderMap::new(), &mut Rng::new(1));
    assert!(matches!(selected, Err(RouteError::NotForwarding { .. })));
    assert!(verdicts[0].matched);
}
