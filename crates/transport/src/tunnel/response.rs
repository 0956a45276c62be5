//! The head of a proxy's response to CONNECT: status line and headers, within a limit.

use httparse::{EMPTY_HEADER, Error, Response, Status};

/// The maximum length of the head, interim responses included.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// The maximum number of headers.
const MAX_HEADERS: usize = 100;
/// The start of every response.
const START: &[u8] = b"HTTP/1.";
/// The number of characters of the reason phrase that are kept.
const KEPT_REASON: usize = 100;
/// The number of bytes of something else that an error shows.
const SHOWN: usize = 32;
/// The status of a response that changes the protocol, which is final.
const SWITCHING_PROTOCOLS: u16 = 101;

/// The head of the final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// The reason phrase; may be empty.
    pub(super) reason: String,
    /// The number of bytes up to the end of the head. The next byte is the first of the tunnel.
    pub(crate) length: usize,
}

impl Head {
    /// Reads the head from the bytes received so far; `None` while it is incomplete.
    pub(crate) fn read(received: &[u8]) -> Result<Option<Self>, String> {
        let mut rest = received;
        loop {
            Self::check(rest)?;
            let Some((status, reason, length)) = one(rest)? else { break };
            rest = rest.get(length..).unwrap_or_default();
            // RFC 9110, section 15.2: interim responses are ignored.
            if !(100..200).contains(&status) || status == SWITCHING_PROTOCOLS {
                let length = received.len() - rest.len();
                return if length > MAX_HEAD {
                    Err(too_long())
                } else {
                    Ok(Some(Self { status, reason, length }))
                };
            }
        }
        if received.len() >= MAX_HEAD { Err(too_long()) } else { Ok(None) }
    }

    /// Checks the first bytes of a head.
    pub(crate) fn check(received: &[u8]) -> Result<(), String> {
        if received.iter().zip(START).any(|(byte, expected)| byte != expected) {
            let shown = received.get(..SHOWN).unwrap_or(received).escape_ascii();
            return Err(format!("it is not HTTP/1, but \"{shown}\""));
        }
        Ok(())
    }
}

/// One response: its status, reason phrase and length.
fn one(received: &[u8]) -> Result<Option<(u16, String, usize)>, String> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut response = Response::new(&mut headers);
    match response.parse(received) {
        Ok(Status::Partial) => Ok(None),
        Ok(Status::Complete(length)) => {
            let reason = response.reason.unwrap_or_default().chars().take(KEPT_REASON).collect();
            // A complete response has a status.
            Ok(response.code.map(|status| (status, reason, length)))
        }
        Err(Error::TooManyHeaders) => Err(format!("it has more than {MAX_HEADERS} headers")),
        Err(error) => Err(error.to_string()),
    }
}

fn too_long() -> String {
    format!("its header does not end within {MAX_HEAD} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, reason: &str, length: usize) -> Result<Option<Head>, String> {
        Ok(Some(Head { status, reason: reason.into(), length }))
    }

    #[test]
    fn the_head_ends_before_the_first_byte_of_the_tunnel() {
        let established = b"HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\n";
        let length = established.len();
        assert_eq!(Head::read(established), head(200, "Connection established", length));
        let rest = [&established[..], b"\r\nHTTP/1.1 500 no\r\n\r\n"].concat();
        assert_eq!(Head::read(&rest), head(200, "Connection established", length));
        for end in 0..length {
            assert_eq!(Head::read(&established[..end]), Ok(None), "{end}");
        }
        assert_eq!(Head::read(b"HTTP/1.0 407 \r\n\r\n"), head(407, "", 17));
        assert_eq!(Head::read(b"HTTP/1.1 204\r\n\r\nx"), head(204, "", 16));
    }

    #[test]
    fn interim_responses_are_skipped() {
        let both = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx";
        assert_eq!(Head::read(both), head(200, "OK", both.len() - 1));
        assert_eq!(Head::read(&both[..30]), Ok(None));
        assert!(Head::read(b"HTTP/1.1 100 Continue\r\n\r\nx").is_err());
        let switching = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(Head::read(switching), head(101, "Switching Protocols", switching.len()));
    }

    #[test]
    fn other_bytes_are_rejected_at_once() {
        for (other, shown) in [
            (&b"SSH-2.0-OpenSSH_9.6\r\n"[..], "SSH-2.0-OpenSSH_9.6\\r\\n"),
            (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "\\r\\nHTTP/1.1 200 OK"),
            (b"HTTP/2", "HTTP/2"),
            (b"\x00\x00\x00\x04", "\\x00\\x00\\x00\\x04"),
        ] {
            let error = Head::read(other).unwrap_err();
            assert!(error.starts_with("it is not HTTP/1") && error.contains(shown), "{error}");
        }
        for (invalid, why) in [
            (&b"HTTP/1.1 2000 OK\r\n\r\n"[..], "invalid HTTP version or status"),
            (b"HTTP/1.1 200 OK\r\n: a\r\n\r\n", "invalid header name"),
            (b"HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n", "invalid header value"),
        ] {
            assert!(Head::read(invalid).is_err(), "{why}");
        }
    }

    #[test]
    fn heads_are_limited() {
        let of = |length: usize| {
            let padding = "a".repeat(length - 24);
            let head = format!("HTTP/1.1 200 OK\r\nA: {padding}\r\n\r\n");
            head.into_bytes()
        };
        let longest = of(MAX_HEAD);
        assert!(matches!(Head::read(&longest), Ok(Some(Head { length: MAX_HEAD, .. }))));
        let too_long = Err("its header does not end within 16384 bytes".to_owned());
        assert_eq!(Head::read(&of(MAX_HEAD + 1)), too_long);
        assert_eq!(Head::read(&of(MAX_HEAD + 1)[..MAX_HEAD]), too_long);
        assert_eq!(Head::read(&[b"HTTP/1.1 200 ", &[b'a'; MAX_HEAD][..]].concat()), too_long);
        assert_eq!(Head::read(&b"HTTP/1.1 100 \r\n\r\n".repeat(1000)), too_long);
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
        assert_eq!(Head::read(many.as_bytes()), Err("it has more than 100 headers".to_owned()));
        let reason = format!("HTTP/1.1 403 {}\r\n\r\n", "no ".repeat(1000));
        let read = Head::read(reason.as_bytes()).unwrap().unwrap();
        assert_eq!((read.status, read.reason.len(), read.length), (403, 100, reason.len()));
    }
}
