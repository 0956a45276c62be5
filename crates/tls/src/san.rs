//! Matching of subject alternative names (gRFC A29).

use proxyless_xds::resource::{StringMatchKind, StringMatcher};

use crate::certificate::SubjectAltName;

/// A29-20, A29-22: whether any name matches any matcher.
pub(crate) fn any_matches(matchers: &[StringMatcher], names: &[SubjectAltName]) -> bool {
    names.iter().any(|name| matchers.iter().any(|matcher| matches(matcher, name)))
}

/// A101-07: whether a DNS name of the certificate is for the server name.
pub(crate) fn any_dns_matches(server_name: &str, names: &[SubjectAltName]) -> bool {
    names.iter().any(|name| matches!(name, SubjectAltName::Dns(pattern) if dns_matches(server_name, pattern)))
}

fn matches(matcher: &StringMatcher, name: &SubjectAltName) -> bool {
    let text = name.text();
    // A29-21: an empty name never matches.
    if text.is_empty() {
        return false;
    }
    match (&matcher.kind, name) {
        // A29-23: an exact matcher follows the rules of DNS where the name is one.
        (StringMatchKind::Exact(exact), SubjectAltName::Dns(pattern)) => dns_matches(exact, pattern),
        _ => matcher.matches(&text),
    }
}

/// Whether a DNS name of a certificate, possibly with a wildcard, is for this host. Case and a final dot do not count; a
/// wildcard is the whole first label and stands for one label.
fn dns_matches(host: &str, pattern: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let pattern = pattern.strip_suffix('.').unwrap_or(pattern);
    if host.is_empty() || pattern.is_empty() {
        return false;
    }
    if host.eq_ignore_ascii_case(pattern) {
        return true;
    }
    let Some(domain) = pattern.strip_prefix("*.") else { return false };
    let Some((label, rest)) = host.split_once('.') else { return false };
    !label.is_empty() && !domain.contains('*') && rest.eq_ignore_ascii_case(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(kind: StringMatchKind, ignore_case: bool) -> StringMatcher {
        StringMatcher { kind, ignore_case }
    }

    fn exact(text: &str) -> StringMatcher {
        matcher(StringMatchKind::Exact(text.into()), false)
    }

    fn dns(name: &str) -> SubjectAltName {
        SubjectAltName::Dns(name.into())
    }

    #[test]
    fn a29_23_a101_07_exact_matchers_follow_the_wildcards_of_dns_names() {
        for (host, pattern, expected) in [
            ("a.example.com", "a.example.com", true),
            ("A.Example.com", "a.eXample.COM", true),
            ("a.example.com.", "a.example.com", true),
            ("a.example.com", "a.example.com.", true),
            ("a.example.com", "*.example.com", true),
            ("a.EXAMPLE.com", "*.example.com", true),
            ("a.b.example.com", "*.example.com", false),
            ("example.com", "*.example.com", false),
            (".example.com", "*.example.com", false),
            ("a.example.com", "a*.example.com", false),
            ("a.example.com", "*a.example.com", false),
            ("a.b.example.com", "*.*.example.com", false),
            ("a.b.example.com", "a.*.example.com", false),
            ("a", "*", false),
            ("a.", "*.", false),
            ("*.example.com", "*.example.com", true),
            ("", "", false),
            (".", ".", false),
        ] {
            assert_eq!(any_matches(&[exact(host)], &[dns(pattern)]), expected, "{host} {pattern}");
            assert_eq!(any_dns_matches(host, &[dns(pattern)]), expected, "{host} {pattern}");
        }
    }

    #[test]
    fn a29_23_wildcards_are_for_exact_matchers_of_dns_names_only() {
        let name = dns("*.example.com");
        let prefix = matcher(StringMatchKind::Prefix("a.".into()), false);
        assert!(!any_matches(&[prefix], std::slice::from_ref(&name)));
        assert!(any_matches(&[matcher(StringMatchKind::Prefix("*.".into()), false)], &[name]));
        let uri = SubjectAltName::Uri("*.example.com".into());
        assert!(!any_matches(&[exact("a.example.com")], std::slice::from_ref(&uri)));
        assert!(!any_dns_matches("*.example.com", &[uri]));
    }

    #[test]
    fn a29_20_a29_22_every_kind_of_matcher_and_of_name_counts() {
        let uri = SubjectAltName::Uri("spiffe://Mesh/a".into());
        let email = SubjectAltName::Email("me@example.com".into());
        let ip = SubjectAltName::Ip("2001:DB8:0::01".parse().unwrap());
        let regex = StringMatchKind::Regex(regex::Regex::new("^(?:spiffe://.*/a)$").unwrap());
        for (kind, name) in [
            (StringMatchKind::Exact("spiffe://Mesh/a".into()), &uri),
            (StringMatchKind::Suffix("/a".into()), &uri),
            (StringMatchKind::Contains("Mesh".into()), &uri),
            (regex, &uri),
            (StringMatchKind::Exact("me@example.com".into()), &email),
            // A29-20: the canonical form of an address.
            (StringMatchKind::Exact("2001:db8::1".into()), &ip),
        ] {
            let matcher = matcher(kind, false);
            assert!(any_matches(std::slice::from_ref(&matcher), std::slice::from_ref(name)), "{matcher:?}");
            assert!(!any_matches(&[matcher], &[SubjectAltName::Uri("other".into())]));
        }
        let insensitive = matcher(StringMatchKind::Prefix("SPIFFE://mesh".into()), true);
        assert!(any_matches(&[exact("x"), insensitive], &[dns("y"), uri]));
    }

    #[test]
    fn a29_21_an_empty_name_matches_nothing() {
        let all = StringMatchKind::Regex(regex::Regex::new("^(?:.*)$").unwrap());
        let empty = [dns(""), SubjectAltName::Uri(String::new()), SubjectAltName::Email(String::new())];
        assert!(!any_matches(&[matcher(all, false), exact("")], &empty));
        assert!(!any_matches(&[exact("a")], &[]));
    }
}
