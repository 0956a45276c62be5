//! Matching of headers (gRFC A28).

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use proxyless_xds::resource::{HeaderMatcher, HeaderValueMatcher};

use super::path::CompiledString;

/// A compiled header matcher.
#[derive(Debug)]
pub(super) struct CompiledHeader {
    source: HeaderSource,
    value: CompiledValue,
    invert: bool,
}

#[derive(Debug)]
enum CompiledValue {
    String(CompiledString),
    Range { start: i64, end: i64 },
    Present(bool),
}

impl CompiledHeader {
    pub(super) fn new(matcher: &HeaderMatcher) -> Self {
        let value = match &matcher.value {
            HeaderValueMatcher::String(string) => CompiledValue::String(CompiledString::new(string)),
            HeaderValueMatcher::Range { start, end } => CompiledValue::Range { start: *start, end: *end },
            HeaderValueMatcher::Present(present) => CompiledValue::Present(*present),
        };
        Self { source: HeaderSource::new(&matcher.name), value, invert: matcher.invert }
    }

    pub(super) fn matches(&self, headers: &HeaderMap) -> bool {
        let value = self.source.value(headers);
        let matched = match (&self.value, value) {
            (CompiledValue::Present(wanted), value) => value.is_some() == *wanted,
            // As in every implementation: an absent header matches neither a condition nor its inversion.
            (_, None) => return false,
            (CompiledValue::String(string), Some(value)) => string.matches(&value),
            (CompiledValue::Range { start, end }, Some(value)) => {
                value.trim().parse().is_ok_and(|number: i64| (*start..*end).contains(&number))
            }
        };
        matched != self.invert
    }
}

/// The source of a header's value.
#[derive(Debug)]
pub(super) enum HeaderSource {
    /// The request.
    Request(HeaderName),
    /// A28: always this value, even if it is added later.
    ContentType,
    /// Always absent.
    Never,
}

impl HeaderSource {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "content-type" => Self::ContentType,
            // A28: only custom metadata is visible, except for binary headers.
            "te" | "user-agent" => Self::Never,
            name if name.ends_with("-bin") || name.starts_with("grpc-") => Self::Never,
            name => HeaderName::from_bytes(name.as_bytes()).map_or(Self::Never, Self::Request),
        }
    }

    /// The header's value; multiple values are joined by commas.
    pub(super) fn value<'a>(&self, headers: &'a HeaderMap) -> Option<Cow<'a, str>> {
        let name = match self {
            Self::Request(name) => name,
            Self::ContentType => return Some(Cow::Borrowed("application/grpc")),
            Self::Never => return None,
        };
        let mut values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let mut all = values.next()?;
        for value in values {
            let all = all.to_mut();
            all.push(',');
            all.push_str(&value);
        }
        Some(all)
    }
}
