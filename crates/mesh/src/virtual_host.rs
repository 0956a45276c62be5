//! Selection of the virtual host for an authority.

use std::sync::Arc;

use proxyless_xds::resource::{RouteConfiguration, VirtualHost};

/// The virtual host whose domains match `authority` best, if any.
///
/// A27-75: an exact domain takes precedence over the longest suffix (`*.example.com`), then the longest prefix
/// (`example.*`), then `*`; case is ignored. Of equal matches the first applies.
#[must_use]
pub fn find_virtual_host<'a>(
    routes: &'a RouteConfiguration,
    authority: &str,
) -> Option<&'a Arc<VirtualHost>> {
    let mut best: Option<(Specificity, &Arc<VirtualHost>)> = None;
    for host in &routes.virtual_hosts {
        if let Some((specificity, _)) = best_domain(host, authority)
            && best.is_none_or(|(so_far, _)| specificity > so_far)
        {
            best = Some((specificity, host));
        }
    }
    best.map(|(_, host)| host)
}

/// The most specific domain of `host` that matches `authority`; of equal ones the first.
fn best_domain<'a>(host: &'a VirtualHost, authority: &str) -> Option<(Specificity, &'a str)> {
    let matching =
        host.domains.iter().filter_map(|domain| Some((match_domain(domain, authority)?, &**domain)));
    matching.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

/// A virtual host that matches an authority, for inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchingHost {
    /// Its name.
    pub name: String,
    /// Its most specific domain that matches.
    pub domain: String,
    /// The kind of the match.
    pub kind: &'static str,
    /// Whether it is the one in use.
    pub chosen: bool,
}

/// The virtual hosts that match `authority`, in order.
#[must_use]
pub fn matching_hosts(routes: &RouteConfiguration, authority: &str) -> Vec<MatchingHost> {
    let chosen = find_virtual_host(routes, authority);
    let matching = routes.virtual_hosts.iter().filter_map(|host| {
        let (specificity, domain) = best_domain(host, authority)?;
        Some(MatchingHost {
            name: host.name.clone(),
            domain: domain.to_owned(),
            kind: specificity.kind(),
            chosen: chosen.is_some_and(|chosen| Arc::ptr_eq(chosen, host)),
        })
    });
    matching.collect()
}

/// The specificity of a match; later variants and longer patterns are more specific.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Universe,
    Prefix(usize),
    Suffix(usize),
    Exact,
}

impl Specificity {
    fn kind(self) -> &'static str {
        match self {
            Self::Universe => "any authority",
            Self::Prefix(_) => "a prefix of the authority",
            Self::Suffix(_) => "a suffix of the authority",
            Self::Exact => "exactly the authority",
        }
    }
}

fn match_domain(pattern: &str, authority: &str) -> Option<Specificity> {
    let (pattern, authority) = (pattern.as_bytes(), authority.as_bytes());
    match pattern {
        [b'*'] => Some(Specificity::Universe),
        // The asterisk stands for at least one character.
        [b'*', suffix @ ..] => authority
            .len()
            .checked_sub(suffix.len())
            .filter(|&start| start > 0)
            .and_then(|start| authority.get(start..))
            .filter(|end| end.eq_ignore_ascii_case(suffix))
            .map(|_| Specificity::Suffix(pattern.len())),
        [prefix @ .., b'*'] => authority
            .get(..prefix.len())
            .filter(|start| authority.len() > prefix.len() && start.eq_ignore_ascii_case(prefix))
            .map(|_| Specificity::Prefix(pattern.len())),
        exact => exact.eq_ignore_ascii_case(authority).then_some(Specificity::Exact),
    }
}

#[cfg(test)]
mod tests {
    use proxyless_xds::resource::FilterOverrides;

    use super::*;

    fn chosen(hosts: &[(&str, &[&str])], authority: &str) -> Option<String> {
        let virtual_hosts = hosts.iter().map(|(name, domains)| {
            let domains = domains.iter().map(ToString::to_string).collect();
            Arc::new(VirtualHost {
                name: name.to_string(),
                domains,
                routes: Vec::new(),
                retry_policy: None,
                filter_overrides: FilterOverrides::default(),
            })
        });
        let routes = RouteConfiguration { virtual_hosts: virtual_hosts.collect() };
        find_virtual_host(&routes, authority).map(|host| host.name.clone())
    }

    fn chose(hosts: &[(&str, &[&str])], authority: &str, name: &str) -> bool {
        chosen(hosts, authority).as_deref() == Some(name)
    }

    #[test]
    fn a27_75_exact_then_suffix_then_prefix_then_universe() {
        let all: &[(&str, &[&str])] =
            &[("any", &["*"]), ("prefix", &["a.b.*"]), ("suffix", &["*.c"]), ("exact", &["x", "a.b.c"])];
        assert!(chose(all, "a.b.c", "exact"));
        assert!(chose(&all[..3], "a.b.c", "suffix"));
        assert!(chose(&all[..2], "a.b.c", "prefix"));
        assert!(chose(&all[..1], "a.b.c", "any"));
    }

    #[test]
    fn a27_75_the_hosts_that_match_are_listed_with_their_best_domains() {
        let host = |name: &str, domains: &[&str]| {
            Arc::new(VirtualHost {
                name: name.to_owned(),
                domains: domains.iter().map(ToString::to_string).collect(),
                routes: Vec::new(),
                retry_policy: None,
                filter_overrides: FilterOverrides::default(),
            })
        };
        let hosts = vec![host("any", &["*"]), host("no", &["x"]), host("suffix", &["*", "*.c", "*.b.c"])];
        let listed = matching_hosts(&RouteConfiguration { virtual_hosts: hosts }, "a.b.c");
        let listed: Vec<_> =
            listed.iter().map(|host| (&*host.name, &*host.domain, host.kind, host.chosen)).collect();
        assert_eq!(
            listed,
            [("any", "*", "any authority", false), ("suffix", "*.b.c", "a suffix of the authority", true)]
        );
    }

    #[test]
    fn a27_75_longest_pattern_wins_within_a_kind() {
        let hosts: &[(&str, &[&str])] =
            &[("s", &["*.c"]), ("long", &["*.b.c"]), ("p", &["q*"]), ("plong", &["q.r*"])];
        assert!(chose(hosts, "a.b.c", "long"));
        assert!(chose(hosts, "q.rs", "plong"));
        assert!(chose(&[("first", &["*.c"]), ("second", &["*.c"])], "a.c", "first"));
    }

    #[test]
    fn a27_75_of_a_domain_that_occurs_twice_the_first_counts() {
        for domains in [["a.c", "A.C"], ["*.c", "*.C"], ["a.*", "A.*"], ["*", "*"]] {
            let hosts = [("other", &["x"][..]), ("first", &domains[..1]), ("second", &domains[1..])];
            assert!(chose(&hosts, "a.c", "first"), "{domains:?}");
            assert!(chose(&[("both", &domains)], "a.c", "both"), "{domains:?}");
        }
    }

    #[test]
    fn a27_75_case_does_not_count() {
        assert!(chose(&[("h", &["Foo.Example.COM"])], "foo.example.com", "h"));
        assert!(chose(&[("h", &["*.EXAMPLE.com"])], "foo.Example.Com", "h"));
        assert!(chose(&[("h", &["FOO.*"])], "foo.com", "h"));
    }

    #[test]
    fn a27_75_asterisk_stands_for_at_least_one_character() {
        assert_eq!(chosen(&[("h", &["*.c"])], ".c"), None);
        assert_eq!(chosen(&[("h", &["a*"])], "a"), None);
        assert_eq!(chosen(&[("h", &["*long-suffix"])], "x"), None);
        assert_eq!(chosen(&[("h", &["long-prefix*"])], "x"), None);
    }

    #[test]
    fn a27_76_none_matches() {
        assert_eq!(chosen(&[("h", &["a"]), ("g", &["*.b"])], "c"), None);
        assert_eq!(chosen(&[], "c"), None);
    }

    #[test]
    fn a27_63_port_is_part_of_the_name() {
        assert_eq!(chosen(&[("h", &["a.b"])], "a.b:80"), None);
        assert!(chose(&[("h", &["a.b:80"])], "a.b:80", "h"));
    }
}
