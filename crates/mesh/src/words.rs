//! Matchers of routes as text, for inspection.

use std::fmt;

use proxyless_xds::resource::{
    HeaderMatcher, HeaderValueMatcher, PathMatcher, RouteMatch, StringMatchKind, StringMatcher,
};

/// A matcher as text.
pub(crate) struct Words<'a, T>(pub(crate) &'a T);

impl fmt::Display for Words<'_, RouteMatch> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RouteMatch { path, headers, fraction_per_million } = self.0;
        match path {
            PathMatcher::Prefix { prefix, .. } if prefix.is_empty() || prefix == "/" => {
                write!(f, "any path")?
            }
            PathMatcher::Prefix { prefix, .. } => write!(f, "path {prefix}*")?,
            PathMatcher::Path { path, .. } => write!(f, "path {path}")?,
            PathMatcher::Regex(regex) => write!(f, "path ~ {regex}")?,
        }
        for header in headers {
            write!(f, ", {}", Words(header))?;
        }
        match fraction_per_million {
            Some(share) => write!(f, ", {:.4} % of RPCs", f64::from(*share) / 10_000.0),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Words<'_, HeaderMatcher> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeaderMatcher { name, value, invert } = self.0;
        let not = if *invert { "not " } else { "" };
        match value {
            HeaderValueMatcher::String(string) => write!(f, "{not}{name} {}", Words(string)),
            HeaderValueMatcher::Range { start, end } => write!(f, "{not}{name} in {start}..{end}"),
            HeaderValueMatcher::Present(true) => write!(f, "{not}{name} present"),
            HeaderValueMatcher::Present(false) => write!(f, "{not}{name} absent"),
        }
    }
}

impl fmt::Display for Words<'_, StringMatcher> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            StringMatchKind::Exact(text) => write!(f, "= {text}"),
            StringMatchKind::Prefix(text) => write!(f, "= {text}*"),
            StringMatchKind::Suffix(text) => write!(f, "= *{text}"),
            StringMatchKind::Contains(text) => write!(f, "= *{text}*"),
            StringMatchKind::Regex(regex) => write!(f, "~ {regex}"),
        }
    }
}
