//! Metadata as the carrier of propagators.

use std::sync::Once;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector};

use super::GRPC_TRACE_BIN;

/// Lets a propagator write into metadata: an [`http::HeaderMap`], or `metadata.as_mut()` of tonic's. An entry of the same
/// name is replaced.
///
/// A72: of binary headers only `grpc-trace-bin` is supported; others (`…-bin`) are left out.
#[derive(Debug)]
pub struct MetadataInjector<'a>(pub &'a mut HeaderMap);

impl Injector for MetadataInjector<'_> {
    fn set(&mut self, key: &str, value: String) {
        if is_unsupported(key) {
            return;
        }
        // A propagator sends valid headers, or its value is lost: the call is more important.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }

    fn reserve(&mut self, additional: usize) {
        self.0.reserve(additional);
    }
}

/// Lets a propagator read metadata: an [`http::HeaderMap`], or `metadata.as_ref()` of tonic's. With it a server continues
/// the trace of its caller:
///
/// ```
/// use opentelemetry::Context;
/// use opentelemetry::propagation::TextMapPropagator as _;
/// use opentelemetry_sdk::propagation::TraceContextPropagator;
/// use proxyless_otel::MetadataExtractor;
///
/// fn parent<T>(request: &tonic::Request<T>) -> Context {
///     TraceContextPropagator::new().extract(&MetadataExtractor(request.metadata().as_ref()))
/// }
/// # parent(&tonic::Request::new(()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MetadataExtractor<'a>(pub &'a HeaderMap);

impl Extractor for MetadataExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        if is_unsupported(key) {
            return None;
        }
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }

    fn get_all(&self, key: &str) -> Option<Vec<&str>> {
        if is_unsupported(key) {
            return None;
        }
        let values: Vec<_> = self.0.get_all(key).iter().filter_map(|value| value.to_str().ok()).collect();
        Some(values).filter(|values| !values.is_empty())
    }
}

/// A72: a binary header of another propagator. The first one is reported.
fn is_unsupported(key: &str) -> bool {
    static ONCE: Once = Once::new();
    let unsupported = key.ends_with("-bin") && key != GRPC_TRACE_BIN;
    if unsupported {
        ONCE.call_once(|| {
            tracing::error!(
                header = key,
                "binary headers of propagators are not supported, except grpc-trace-bin"
            );
        });
    }
    unsupported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a72_propagators_write_and_read_metadata() {
        let mut headers = HeaderMap::new();
        let mut injector = MetadataInjector(&mut headers);
        injector.reserve(2);
        injector.set("TraceParent", "a".to_owned());
        injector.set("traceparent", "b".to_owned());
        injector.set("grpc-trace-bin", "AAA".to_owned());
        injector.set("other-bin", "AAA".to_owned());
        injector.set("not a name", "a".to_owned());
        injector.set("not-a-value", "\n".to_owned());
        let extractor = MetadataExtractor(&headers);
        assert_eq!(extractor.get("traceparent"), Some("b"));
        assert_eq!(extractor.get_all("Traceparent"), Some(vec!["b"]));
        assert_eq!(extractor.get("grpc-trace-bin"), Some("AAA"));
        assert_eq!((extractor.get("other-bin"), extractor.get_all("other-bin")), (None, None));
        assert_eq!(extractor.get_all("absent"), None);
        assert_eq!(extractor.keys(), ["traceparent", "grpc-trace-bin"]);
    }
}
