//! Matchers of paths, headers and strings (gRFC A28, A63).

mod matching;
mod validate;

use std::hash::{Hash, Hasher};

use regex::Regex;

pub(crate) use validate::{compile, header_matcher, path_matcher, string_matcher};

/// Matches the path of a method. Prefix, path and regex are case sensitive by default.
#[derive(Clone, Debug)]
pub enum PathMatcher {
    /// The path starts with this prefix.
    Prefix {
        /// The prefix.
        prefix: String,
        /// Whether matching is case sensitive.
        case_sensitive: bool,
    },
    /// The path equals this one.
    Path {
        /// The path.
        path: String,
        /// Whether matching is case sensitive.
        case_sensitive: bool,
    },
    /// The whole path matches this regex, which is anchored at both ends.
    Regex(Regex),
}

/// Matches a string (gRFC A63).
#[derive(Clone, Debug)]
pub struct StringMatcher {
    /// The condition.
    pub kind: StringMatchKind,
    /// Whether case is ignored (never for a regex).
    pub ignore_case: bool,
}

/// The conditions on a string.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the names are xDS's own
pub enum StringMatchKind {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// The whole string matches this regex, which is anchored at both ends.
    Regex(Regex),
}

/// Matches one header of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderMatcher {
    /// The header's name, in lower case.
    pub name: String,
    /// The condition on the value. Multiple values of one name are joined by commas first.
    pub value: HeaderValueMatcher,
    /// Whether the match is inverted.
    pub invert: bool,
}

/// The conditions on a header value.
#[derive(Clone, Debug, PartialEq)]
pub enum HeaderValueMatcher {
    /// A condition on the value as a string.
    String(StringMatcher),
    /// The value is a base-10 integer in `start..end`.
    Range {
        /// Inclusive lower bound.
        start: i64,
        /// Exclusive upper bound.
        end: i64,
    },
    /// Whether the header is present.
    Present(bool),
}

impl PartialEq for PathMatcher {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Prefix { prefix: a, case_sensitive: c },
                Self::Prefix { prefix: b, case_sensitive: d },
            ) => a == b && c == d,
            (Self::Path { path: a, case_sensitive: c }, Self::Path { path: b, case_sensitive: d }) => {
                a == b && c == d
            }
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl PartialEq for StringMatcher {
    fn eq(&self, other: &Self) -> bool {
        use StringMatchKind::{Contains, Exact, Prefix, Regex, Suffix};
        self.ignore_case == other.ignore_case
            && match (&self.kind, &other.kind) {
                (Exact(a), Exact(b))
                | (Prefix(a), Prefix(b))
                | (Suffix(a), Suffix(b))
                | (Contains(a), Contains(b)) => a == b,
                (Regex(a), Regex(b)) => a.as_str() == b.as_str(),
                _ => false,
            }
    }
}

/// A regex equals itself.
impl Eq for StringMatcher {}

impl Hash for StringMatcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ignore_case.hash(state);
        std::mem::discriminant(&self.kind).hash(state);
        self.kind.text().hash(state);
    }
}

impl StringMatchKind {
    /// The text that is compared, or the pattern of the regex.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Suffix(text) | Self::Contains(text) => text,
            Self::Regex(regex) => regex.as_str(),
        }
    }
}
