//! Matching of paths, and of strings in general (gRFC A28, A63).

use proxyless_xds::resource::{PathMatcher, StringMatchKind, StringMatcher};
use regex::Regex;

/// A compiled path matcher.
#[derive(Debug)]
pub(super) struct CompiledPath(CompiledString);

impl CompiledPath {
    pub(super) fn new(matcher: &PathMatcher) -> Self {
        Self(match matcher {
            PathMatcher::Prefix { prefix, case_sensitive } => {
                CompiledString::Prefix(Text { text: prefix.clone(), ignore_case: !case_sensitive })
            }
            PathMatcher::Path { path, case_sensitive } => {
                CompiledString::Exact(Text { text: path.clone(), ignore_case: !case_sensitive })
            }
            // A28: anchored, so that it matches the whole value.
            PathMatcher::Regex(regex) => CompiledString::Regex(regex.clone()),
        })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.matches(path)
    }
}

/// A compiled string matcher.
#[derive(Debug)]
pub(super) enum CompiledString {
    Exact(Text),
    Prefix(Text),
    Suffix(Text),
    Contains(Text),
    Regex(Regex),
}

/// The text to compare with.
#[derive(Debug)]
pub(super) struct Text {
    text: String,
    ignore_case: bool,
}

impl CompiledString {
    pub(super) fn new(StringMatcher { kind, ignore_case }: &StringMatcher) -> Self {
        let text = |text: &String| Text { text: text.clone(), ignore_case: *ignore_case };
        match kind {
            StringMatchKind::Exact(exact) => Self::Exact(text(exact)),
            StringMatchKind::Prefix(prefix) => Self::Prefix(text(prefix)),
            StringMatchKind::Suffix(suffix) => Self::Suffix(text(suffix)),
            StringMatchKind::Contains(part) => Self::Contains(text(part)),
            StringMatchKind::Regex(regex) => Self::Regex(regex.clone()),
        }
    }

    pub(super) fn matches(&self, value: &str) -> bool {
        let bytes = value.as_bytes();
        match self {
            Self::Exact(text) => text.is(bytes),
            Self::Prefix(text) => bytes.get(..text.text.len()).is_some_and(|start| text.is(start)),
            Self::Suffix(text) => {
                let start = bytes.len().checked_sub(text.text.len());
                start.and_then(|start| bytes.get(start..)).is_some_and(|end| text.is(end))
            }
            Self::Contains(text) if !text.ignore_case => value.contains(&text.text),
            Self::Contains(text) if text.text.is_empty() => true,
            Self::Contains(text) => bytes.windows(text.text.len()).any(|part| text.is(part)),
            Self::Regex(regex) => regex.is_match(value),
        }
    }
}

impl Text {
    fn is(&self, bytes: &[u8]) -> bool {
        match self.ignore_case {
            true => bytes.eq_ignore_ascii_case(self.text.as_bytes()),
            false => bytes == self.text.as_bytes(),
        }
    }
}
