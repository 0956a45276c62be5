//! Matching of headers (gRFC A28).

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use proxyless_xds::resource::HeaderMatcher;

/// A header matcher with the source of its header's value.
#[derive(Debug)]
pub(super) struct CompiledHeader {
    source: HeaderSource,
    matcher: HeaderMatcher,
}

impl CompiledHeader {
    pub(super) fn new(matcher: &HeaderMatcher) -> Self {
        Self { source: HeaderSource::new(&matcher.name), matcher: matcher.clone() }
    }

    /// The matcher.
    pub(super) fn matcher(&self) -> &HeaderMatcher {
        &self.matcher
    }

    /// The value that is matched.
    pub(super) fn value<'a>(&self, headers: &'a HeaderMap) -> Option<Cow<'a, str>> {
        self.source.value(headers)
    }

    pub(super) fn matches(&self, headers: &HeaderMap) -> bool {
        self.matcher.matches(self.source.value(headers).as_deref())
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
