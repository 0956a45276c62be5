//! Finds the streams that have started in the bytes that the socket has taken.

use crate::frame::{FrameHeader, HEADER, HEADERS, Partial, split};

const RST_STREAM: u8 = 0x3;
/// The length of the client's connection preface.
const PREFACE: usize = 24;

/// The state of the parser of sent frames. Bytes may be split anywhere.
pub(crate) struct SentFrames(State);

enum State {
    Header(Partial<HEADER>),
    /// In a payload; when it ends, the stream with this id has started.
    Payload {
        left: usize,
        begins: Option<u32>,
    },
}

impl Default for SentFrames {
    fn default() -> Self {
        Self(State::Payload { left: PREFACE, begins: None })
    }
}

impl SentFrames {
    /// Parses the next bytes. Returns the last stream whose HEADERS frame they complete. (A head continued in
    /// CONTINUATION frames counts from then on too, though no server can act on it yet.) Calls `reset` for each
    /// RST_STREAM.
    pub(crate) fn push(&mut self, mut data: &[u8], mut reset: impl FnMut(u32)) -> Option<u32> {
        let mut last = None;
        while !data.is_empty() {
            match &mut self.0 {
                State::Header(partial) => {
                    let (header, rest) = partial.fill(data);
                    data = rest;
                    let Some(header) = header else { continue };
                    let FrameHeader { length, kind, stream, .. } = header.into();
                    if kind == RST_STREAM {
                        reset(stream);
                    }
                    self.0 = State::Payload { left: length, begins: (kind == HEADERS).then_some(stream) };
                }
                State::Payload { left, .. } => {
                    let (payload, rest) = split(data, *left);
                    *left -= payload.len();
                    data = rest;
                }
            }
            if let State::Payload { left: 0, begins } = self.0 {
                last = last.max(begins);
                self.0 = State::Header(Partial::default());
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        [&length[1..], &[kind, 4, 0, 0, 0, stream], &vec![1; payload]].concat()
    }

    #[test]
    fn a_stream_has_begun_when_its_headers_are_whole() {
        let head = [vec![b'P'; PREFACE], frame(4, 0, 12), frame(1, 1, 20)].concat();
        let bytes = [head.clone(), frame(0, 1, 300), frame(1, 3, 0), frame(0, 3, 5)].concat();
        for at in 0..=bytes.len() {
            let mut frames = SentFrames::default();
            let (first, second) = bytes.split_at(at);
            let seen = (frames.push(first, drop), frames.push(second, drop));
            let third = head.len() + 9 + 300 + 9;
            let expected = match at {
                _ if at < head.len() => (None, Some(3)),
                _ if at < third => (Some(1), Some(3)),
                _ => (Some(3), None),
            };
            assert_eq!(seen, expected, "cut at {at}");
        }
    }

    #[test]
    fn frames_may_be_cut_after_every_byte() {
        let parts = [frame(1, 1, 20), frame(6, 0, 8), frame(1, 3, 7), frame(3, 1, 4)];
        let bytes = [vec![b'P'; PREFACE], parts.concat()].concat();
        let mut frames = SentFrames::default();
        let mut reset = Vec::new();
        let seen: Vec<_> =
            bytes.chunks(1).filter_map(|byte| frames.push(byte, |id| reset.push(id))).collect();
        assert_eq!(seen, [1, 3]);
        assert_eq!(reset, [1]);
    }
}
