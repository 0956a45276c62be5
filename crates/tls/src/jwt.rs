//! Bearer tokens from a file (gRFC A97).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::UnixTime;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::file::{self, FileError};

/// A97-02: a token counts as expired this long before it is.
const SAFETY_SECONDS: u64 = 30;
/// A97-03: a token is read again this long before it counts as expired.
const REFRESH_SECONDS: u64 = 60;
/// The maximum length of a token: more than servers accept in a header.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// A97-08: the backoff of reads that fail.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(120);

/// A file with a JSON web token, which is read when it is needed and kept until it expires.
pub struct JwtTokenFile {
    file: PathBuf,
    clock: Arc<dyn TimeProvider>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    failure: Option<Failure>,
}

/// The last read has failed.
struct Failure {
    error: TokenError,
    pause: Duration,
    /// The time, since 1970, before which there is no other attempt.
    until: Duration,
}

/// A token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: Arc<str>,
    /// When it counts as expired, in seconds since 1970.
    expires: u64,
}

/// A token that cannot be used. The messages never quote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A97-06: the file cannot be read: status UNAVAILABLE.
    #[error("token file {0}")]
    Unreadable(FileError),
    /// A97-07: the file has no valid token: status UNAUTHENTICATED.
    #[error("token file {0}")]
    Invalid(FileError),
}

impl JwtTokenFile {
    /// The token in this file.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self::with_clock(file, Arc::new(DefaultTimeProvider))
    }

    /// Like [`Self::new`], with a clock.
    #[must_use]
    pub fn with_clock(file: PathBuf, clock: Arc<dyn TimeProvider>) -> Self {
        Self { file, clock, state: Mutex::default() }
    }

    /// The token. The file is read if there is none, or if it expires soon; a read that fails is repeated after a growing
    /// pause, and its error is returned until then. A97-05: callers wait for a read that is in progress.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or has no valid token, and no earlier token can be used.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn token(&self) -> Result<Token, TokenError> {
        let mut state = self.state.lock().await;
        let now = self.now();
        let cached = state.token.clone().filter(|token| token.expires > now.as_secs());
        // A97-01, A97-04: kept until shortly before it expires.
        if let Some(token) =
            cached.clone().filter(|token| token.expires > now.as_secs().saturating_add(REFRESH_SECONDS))
        {
            return Ok(token);
        }
        // A97-08: until the pause is over, the last read counts.
        if let Some(failure) = state.failure.as_ref().filter(|failure| now < failure.until) {
            return cached.ok_or_else(|| failure.error.clone());
        }
        let file = self.file.clone();
        let read = spawn_blocking(move || file::read(&file)).await;
        let read = read.unwrap_or_else(|error| Err(FileError::new(&self.file, error.to_string())));
        let token = read.map_err(TokenError::Unreadable).and_then(|content| {
            Token::parse(&content).map_err(|why| TokenError::Invalid(FileError::new(&self.file, why)))
        });
        match token {
            Ok(token) => {
                // The server decides, because this clock may be wrong.
                if token.expires <= now.as_secs() {
                    tracing::warn!(
                        "token file {}: the token has expired, or does so soon",
                        self.file.display()
                    );
                }
                // A97-10: without the failure the backoff begins from its start.
                *state = State { token: Some(token.clone()), failure: None };
                Ok(token)
            }
            Err(error) => {
                let pause =
                    state.failure.as_ref().map_or(FIRST_BACKOFF, |failure| failure.pause.mul_f64(1.6));
                let pause = pause.min(MAX_BACKOFF);
                // Once, not at every attempt.
                if state.failure.as_ref().is_none_or(|failure| failure.error != error) {
                    tracing::warn!("{error}");
                }
                state.failure =
                    Some(Failure { error: error.clone(), pause, until: now.saturating_add(pause) });
                cached.ok_or(error)
            }
        }
    }

    /// The time since 1970; all tokens have expired for a clock that does not work.
    fn now(&self) -> Duration {
        self.clock.current_time().map_or(Duration::MAX, |time: UnixTime| Duration::from_secs(time.as_secs()))
    }
}

impl Token {
    /// The value of the header `authorization`.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.text)
    }

    /// A97-07: only `exp` is looked at.
    fn parse(content: &[u8]) -> Result<Self, String> {
        let content = content.trim_ascii();
        if content.len() > MAX_TOKEN_BYTES {
            return Err(format!("has a token of more than {MAX_TOKEN_BYTES} bytes, the limit"));
        }
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let text = std::str::from_utf8(content).ok().filter(|text| text.as_bytes().iter().all(allowed));
        let parts: Vec<&str> = text.into_iter().flat_map(|text| text.split('.')).collect();
        let (Some(text), [_, payload, _]) = (text, parts.as_slice()) else {
            return Err("is not a JSON web token".to_owned());
        };
        let payload = URL_SAFE_NO_PAD.decode(payload).ok();
        let payload: Option<Value> = payload.and_then(|json| serde_json::from_slice(&json).ok());
        let payload = payload.ok_or("has a token whose payload is not JSON")?;
        let expires = payload.get("exp").and_then(Value::as_f64).filter(|exp| *exp >= 0.0);
        // The conversion saturates.
        let expires = expires.ok_or("has a token without a valid exp")? as u64;
        Ok(Self { text: text.into(), expires: expires.saturating_sub(SAFETY_SECONDS) })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl fmt::Debug for JwtTokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtTokenFile").field("file", &self.file).finish_non_exhaustive()
    }
}
