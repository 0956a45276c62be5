//! Matching. Runs for every RPC, so it does not allocate.

use super::{HeaderMatcher, HeaderValueMatcher, PathMatcher, StringMatchKind, StringMatcher};

impl PathMatcher {
    /// Whether the path of a method (`/service/method`) matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Prefix { prefix, case_sensitive: true } => path.starts_with(prefix.as_str()),
            Self::Prefix { prefix, case_sensitive: false } => starts_with_ignore_case(path, prefix),
            Self::Path { path: expected, case_sensitive: true } => path == expected,
            Self::Path { path: expected, case_sensitive: false } => path.eq_ignore_ascii_case(expected),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

impl StringMatcher {
    /// Whether the string matches. Case is ignored for ASCII letters only.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        use StringMatchKind::{Contains, Exact, Prefix, Regex, Suffix};
        match (&self.kind, self.ignore_case) {
            (Exact(exact), false) => text == exact,
            (Exact(exact), true) => text.eq_ignore_ascii_case(exact),
            (Prefix(prefix), false) => text.starts_with(prefix.as_str()),
            (Prefix(prefix), true) => starts_with_ignore_case(text, prefix),
            (Suffix(suffix), false) => text.ends_with(suffix.as_str()),
            (Suffix(suffix), true) => ends_with_ignore_case(text, suffix),
            (Contains(part), false) => text.contains(part.as_str()),
            (Contains(part), true) => contains_ignore_case(text, part),
            (Regex(regex), _) => regex.is_match(text),
        }
    }
}

impl HeaderMatcher {
    /// Whether the header matches; `value` is `None` if the request lacks it.
    ///
    /// The caller joins multiple values of the name by commas, passes `application/grpc` for `content-type` if that
    /// header is added later (A28), and passes no pseudo-headers.
    #[must_use]
    pub fn matches(&self, value: Option<&str>) -> bool {
        // A28: binary headers count as absent.
        let value = value.filter(|_| !self.name.ends_with("-bin"));
        let matches = match (&self.value, value) {
            (HeaderValueMatcher::Present(present), value) => value.is_some() == *present,
            // An absent header matches neither a condition nor its inversion.
            (_, None) => return false,
            (HeaderValueMatcher::String(matcher), Some(value)) => matcher.matches(value),
            (HeaderValueMatcher::Range { start, end }, Some(value)) => {
                value.trim_ascii().parse::<i64>().is_ok_and(|number| (*start..*end).contains(&number))
            }
        };
        matches != self.invert
    }
}

fn starts_with_ignore_case(text: &str, prefix: &str) -> bool {
    let head = text.as_bytes().get(..prefix.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn ends_with_ignore_case(text: &str, suffix: &str) -> bool {
    let start = text.len().checked_sub(suffix.len());
    let tail = start.and_then(|start| text.as_bytes().get(start..));
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(suffix.as_bytes()))
}

fn contains_ignore_case(text: &str, part: &str) -> bool {
    // `windows` panics for a length of zero.
    part.is_empty()
        || text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
