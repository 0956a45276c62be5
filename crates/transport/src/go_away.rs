//! The content of a GOAWAY.

use std::fmt;

use bytes::Bytes;

/// A GOAWAY frame from the server: it accepts no new streams on this connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GoAway {
    /// Streams with a greater id were not and will not be processed.
    pub last_stream_id: u32,
    /// The HTTP/2 error code; 0 is a graceful shutdown.
    pub code: u32,
    /// The server's explanation, truncated to 1 KiB.
    pub debug_data: Bytes,
}

impl GoAway {
    /// The name of the error code, as RFC 9113 has it.
    pub fn code_name(&self) -> impl fmt::Display {
        CodeName(self.code)
    }

    /// Whether the server complains about too frequent keepalive PINGs; the client must then double its interval.
    pub fn is_too_many_pings(&self) -> bool {
        self.code == u32::from(h2::Reason::ENHANCE_YOUR_CALM) && &*self.debug_data == b"too_many_pings"
    }
}

impl fmt::Display for GoAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAWAY with {}", CodeName(self.code))?;
        if !self.debug_data.is_empty() {
            write!(f, " and debug data \"{}\"", self.debug_data.escape_ascii())?;
        }
        Ok(())
    }
}

/// An HTTP/2 error code, displayed by its name.
pub(crate) struct CodeName(pub(crate) u32);

impl fmt::Display for CodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        match usize::try_from(self.0).ok().and_then(|code| NAMES.get(code)) {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go_away(code: u32, debug: &'static str) -> GoAway {
        GoAway { last_stream_id: 1, code, debug_data: Bytes::from_static(debug.as_bytes()) }
    }

    #[test]
    fn says_code_and_debug_data() {
        assert_eq!(go_away(0, "").to_string(), "GOAWAY with NO_ERROR");
        assert_eq!(
            go_away(11, "too_many_pings").to_string(),
            "GOAWAY with ENHANCE_YOUR_CALM and debug data \"too_many_pings\""
        );
        assert_eq!(go_away(99, "").to_string(), "GOAWAY with error code 99");
    }

    #[test]
    fn too_many_pings_needs_code_and_text() {
        assert!(go_away(11, "too_many_pings").is_too_many_pings());
        assert!(!go_away(0, "too_many_pings").is_too_many_pings());
        assert!(!go_away(11, "calm down").is_too_many_pings());
    }
}
