//! The credentials of the streams to a management server: request headers that are made for each stream.

use std::pin::Pin;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use proxyless_tls::JwtTokenFile;

/// The headers, or the reason why there are none. The reason never quotes a secret.
pub(super) type Headers<'a> = Pin<Box<dyn Future<Output = Result<HeaderMap, String>> + Send + 'a>>;

/// A source of credentials for streams. Its headers are sent over TLS only.
pub(super) trait StreamCredentials: Send + Sync {
    /// The headers of a stream that is about to start. Runs in the stream's task; an error ends the stream, and backoff
    /// applies.
    fn headers(&self) -> Headers<'_>;
}

/// A97-11: the token is sent as a bearer token.
impl StreamCredentials for JwtTokenFile {
    fn headers(&self) -> Headers<'_> {
        Box::pin(async {
            let token = self.token().await.map_err(|error| error.to_string())?;
            let mut value = HeaderValue::try_from(token.authorization())
                .map_err(|_| "the token is not a valid header".to_owned())?;
            value.set_sensitive(true);
            Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
        })
    }
}
