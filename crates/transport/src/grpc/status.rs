//! The final status of a gRPC stream.

use std::fmt;

use http::HeaderMap;
use proxyless_sans_io::values::Code;

use super::code_of_reset;
use crate::body::BodyError;

/// The final status of a gRPC stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The gRPC status code.
    pub code: Code,
    /// The status message, percent-decoded.
    pub message: String,
}

impl Status {
    /// Creates a status.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The status in trailers, or in the headers of a trailers-only response; `None` if there is none.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let code = headers.get("grpc-status")?;
        // Invalid numbers count as UNKNOWN.
        let code =
            code.to_str().ok().and_then(|code| code.parse().ok()).map_or(Code::Unknown, Code::from_i32);
        let message = headers.get("grpc-message").map(|message| percent_decode(message.as_bytes()));
        Some(Self { code, message: message.unwrap_or_default() })
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    pub(super) fn result(self) -> Result<(), Self> {
        if self.code == Code::Ok { Ok(()) } else { Err(self) }
    }
}

impl From<BodyError> for Status {
    fn from(error: BodyError) -> Self {
        Self::new(error.reset.map_or(Code::Unavailable, code_of_reset), error.reason)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() { self.code.fmt(f) } else { write!(f, "{}: {}", self.code, self.message) }
    }
}

impl std::error::Error for Status {}

/// Decodes `Percent-Byte-Encoded`; invalid sequences are left as they are.
fn percent_decode(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        let escaped = || {
            let (&[high, low], after) = more.split_first_chunk::<2>()?;
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            Some((digit(high)? << 4 | digit(low)?, after))
        };
        match escaped() {
            Some((decoded, after)) if byte == b'%' => {
                bytes.push(decoded);
                rest = after;
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&'static str, &'static str)]) -> Option<Status> {
        let headers =
            headers.iter().map(|&(name, value)| (name.parse().expect("name"), value.parse().expect("value")));
        Status::from_headers(&headers.collect())
    }

    #[test]
    fn reads_code_and_message() {
        assert_eq!(
            status(&[("grpc-status", "14"), ("grpc-message", "gone%20away: 100%25 %e2%82%ac")]),
            Some(Status::new(Code::Unavailable, "gone away: 100% €"))
        );
        assert_eq!(status(&[("grpc-status", "0")]), Some(Status::new(Code::Ok, "")));
        assert_eq!(status(&[("grpc-message", "x")]), None);
    }

    #[test]
    fn bad_codes_and_escapes_do_no_harm() {
        assert_eq!(
            status(&[("grpc-status", "many"), ("grpc-message", "100% %4 %zz %ff")]),
            Some(Status::new(Code::Unknown, "100% %4 %zz \u{fffd}"))
        );
    }

    #[test]
    fn says_its_code_by_name() {
        assert_eq!(Status::new(Code::Unavailable, "no route").to_string(), "UNAVAILABLE: no route");
        assert_eq!(Status::new(Code::Ok, "").to_string(), "OK");
    }
}
