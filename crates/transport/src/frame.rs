//! Frames of HTTP/2 (RFC 9113, section 4.1) in bytes that may be split anywhere.

/// The length of a frame header.
pub(crate) const HEADER: usize = 9;
/// The type of HEADERS frames.
pub(crate) const HEADERS: u8 = 0x1;

/// A frame header.
pub(crate) struct FrameHeader {
    /// The length of the payload.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl From<[u8; HEADER]> for FrameHeader {
    fn from([a, b, c, kind, flags, stream @ ..]: [u8; HEADER]) -> Self {
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        // The first bit of the stream's id is reserved.
        Self { length, kind, flags, stream: u32::from_be_bytes(stream) & (u32::MAX >> 1) }
    }
}

/// At most the first `at` bytes, and the rest.
pub(crate) fn split(data: &[u8], at: usize) -> (&[u8], &[u8]) {
    data.split_at_checked(at).unwrap_or((data, &[]))
}

/// A fixed number of bytes that may arrive in pieces.
pub(crate) struct Partial<const N: usize> {
    bytes: [u8; N],
    filled: usize,
}

impl<const N: usize> Default for Partial<N> {
    fn default() -> Self {
        Self { bytes: [0; N], filled: 0 }
    }
}

impl<const N: usize> Partial<N> {
    /// The bytes so far.
    pub(crate) fn so_far(&self) -> &[u8] {
        split(&self.bytes, self.filled).0
    }

    /// Takes the missing bytes from `data`. Returns all bytes once complete (and starts over), and the rest of `data`.
    pub(crate) fn fill<'a>(&mut self, data: &'a [u8]) -> (Option<[u8; N]>, &'a [u8]) {
        // Usually all bytes arrive at once.
        if self.filled == 0
            && let Some((whole, rest)) = data.split_first_chunk()
        {
            return (Some(*whole), rest);
        }
        let (bytes, rest) = split(data, N - self.filled);
        for (slot, byte) in self.bytes.iter_mut().skip(self.filled).zip(bytes) {
            *slot = *byte;
        }
        self.filled += bytes.len();
        if self.filled < N {
            return (None, rest);
        }
        self.filled = 0;
        (Some(self.bytes), rest)
    }
}
