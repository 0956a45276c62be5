//! Google's application default credentials (`google_default` in `channel_creds`): access tokens for the streams to a
//! management server, from a service account file, a user's refresh token or the metadata server.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials};
use http::{Extensions, HeaderMap};
use proxyless_tls::install_crypto_provider;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::stream_credentials::{Headers, StreamCredentials};

/// The time that a stream waits for a token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum length of a reason; token servers answer errors with texts of any length.
const MAX_REASON_CHARS: usize = 1024;

/// The application default credentials of the process. They are found when the first stream starts; while a token is
/// valid, google-cloud-auth replaces it in the background before it expires.
#[derive(Default)]
pub(super) struct GoogleDefault {
    current: Mutex<Option<Arc<Credentials>>>,
}

impl StreamCredentials for GoogleDefault {
    fn headers(&self) -> Headers<'_> {
        Box::pin(async {
            let fetched = match timeout(TOKEN_TIMEOUT, self.fetch()).await {
                Ok(fetched) => fetched,
                Err(_) => {
                    // The request behind them may never be answered; the next stream makes another.
                    self.current.lock().await.take();
                    Err(format!("no token within {TOKEN_TIMEOUT:?}"))
                }
            };
            fetched.map_err(|why| format!("google_default: {why}"))
        })
    }
}

impl GoogleDefault {
    async fn fetch(&self) -> Result<HeaderMap, String> {
        let credentials = self.credentials().await?;
        match credentials.headers(Extensions::new()).await {
            Ok(CacheableResource::New { data, .. }) => {
                self.current.lock().await.get_or_insert(credentials);
                Ok(data)
            }
            Ok(CacheableResource::NotModified) => Err("the credentials have no token".to_owned()),
            Err(error) => {
                // Some errors are final for google-cloud-auth, but files and servers get repaired: the next stream
                // starts from the beginning.
                self.current.lock().await.take_if(|current| Arc::ptr_eq(current, &credentials));
                Err(reason(&error))
            }
        }
    }

    /// The credentials that have worked, or new ones.
    async fn credentials(&self) -> Result<Arc<Credentials>, String> {
        if let Some(credentials) = &*self.current.lock().await {
            return Ok(Arc::clone(credentials));
        }
        let built = spawn_blocking(|| {
            // google-cloud-auth has no cryptography of its own, and uses the process's default only.
            install_crypto_provider().map_err(|error| error.to_string())?;
            // Reads files.
            Builder::default().build().map_err(|error| reason(&error))
        });
        built.await.map_err(|error| error.to_string())?.map(Arc::new)
    }
}

/// The text of an error and its sources.
fn reason<'a>(error: &'a (dyn Error + 'static)) -> String {
    let next = |error: &&'a (dyn Error + 'static)| (*error).source();
    let chain = std::iter::successors(Some(error), next);
    // A JSON parser quotes values, which may be secrets, and the errors above it repeat its text.
    if let Some(json) = chain.clone().find_map(|error| error.downcast_ref::<serde_json::Error>()) {
        let (line, column) = (json.line(), json.column());
        return format!("invalid JSON in the credentials or a response, at line {line} column {column}");
    }
    let texts: Vec<_> = chain.map(ToString::to_string).collect();
    texts.join(": ").chars().take(MAX_REASON_CHARS).collect()
}
