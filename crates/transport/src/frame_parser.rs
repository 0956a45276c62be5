//! Finds the relevant frames in the bytes that a server sends.
//!
//! Input: the bytes as they arrive, split anywhere. Output: [`Event`]s. Payloads of other frames are skipped by their
//! length.

use bytes::Bytes;

use crate::frame::{FrameHeader, HEADER, HEADERS, Partial, split};
use crate::go_away::GoAway;
use crate::interim::Interim;

const SETTING: usize = 6;
const END_STREAM: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const DATA: u8 = 0x0;
const SETTINGS: u8 = 0x4;
const GO_AWAY: u8 = 0x7;
const ACK: u8 = 0x1;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
/// The fixed part of a GOAWAY, then its debug data.
const GO_AWAY_FIXED: usize = 8;
const MAX_DEBUG_DATA: usize = 1024;
/// The first bytes of a TLS server that received no ClientHello: an alert record of any version. No valid first frame
/// starts like this.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
const SPEAKS_TLS: &str = "the server speaks TLS: it answered with a TLS alert";

/// A relevant frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// SETTINGS.
    Settings(Settings),
    /// An acknowledgement of our SETTINGS.
    SettingsAck,
    /// GOAWAY.
    GoAway(GoAway),
    /// The first frame is not SETTINGS, so this is not HTTP/2. Nothing is parsed after this.
    NotHttp2 { why: &'static str },
    /// Far more interim responses than a request can have use for. Nothing is parsed after this.
    TooManyInterim,
}

/// The relevant settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) max_concurrent_streams: Option<u32>,
    pub(crate) initial_window_size: Option<u32>,
}

/// The state of the parser.
#[derive(Default)]
pub(crate) struct FrameParser {
    state: State,
    seen_settings: bool,
    interim: Interim,
    /// The number of open streams, each of which gets a response.
    open_streams: usize,
    /// The length of the header block that comes in, on the wire, and of the largest so far.
    block: usize,
    largest_block: usize,
}

enum State {
    /// In a frame header.
    Header(Partial<HEADER>),
    /// In a payload to skip.
    Skip(usize),
    Settings {
        left: usize,
        setting: Partial<SETTING>,
        settings: Settings,
    },
    GoAway {
        left: usize,
        payload: Vec<u8>,
    },
    /// Not HTTP/2.
    Lost,
}

impl Default for State {
    fn default() -> Self {
        Self::Header(Partial::default())
    }
}

impl State {
    fn is_between_frames(&self) -> bool {
        matches!(self, Self::Header(header) if header.so_far().is_empty())
    }
}

/// The bytes after the complete DATA frames at the beginning: most of what a stream receives, and of no interest here.
fn after_whole_data(mut data: &[u8]) -> &[u8] {
    while let Some((header, rest)) = data.split_first_chunk() {
        let header = FrameHeader::from(*header);
        match rest.get(header.length..) {
            Some(rest) if header.kind == DATA => data = rest,
            _ => break,
        }
    }
    data
}

impl FrameParser {
    /// Whether nothing has arrived yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.seen_settings && self.state.is_between_frames()
    }

    /// The length on the wire of the largest header block in the bytes that were pushed last, or else of the last one.
    pub(crate) fn largest_block(&self) -> usize {
        self.largest_block
    }

    /// Sets the number of open streams, each of which gets a response.
    pub(crate) fn expect_responses(&mut self, open_streams: usize) {
        self.open_streams = open_streams;
    }

    /// Parses the next bytes, and calls `sink` for each event.
    pub(crate) fn push(&mut self, mut data: &[u8], mut sink: impl FnMut(Event)) {
        self.largest_block = self.block;
        if self.seen_settings && self.state.is_between_frames() {
            data = after_whole_data(data);
        }
        while !data.is_empty() {
            let (event, rest) = self.step(data);
            data = rest;
            if let Some(event) = event {
                sink(event);
            }
        }
    }

    /// Consumes some of `data`, at least one byte. Returns the completed event, if any, and the rest.
    fn step<'a>(&mut self, data: &'a [u8]) -> (Option<Event>, &'a [u8]) {
        match &mut self.state {
            State::Lost => (None, &[]),
            State::Skip(left) => {
                let (skipped, rest) = split(data, *left);
                *left -= skipped.len();
                if *left == 0 {
                    self.state = State::default();
                }
                (None, rest)
            }
            State::Header(header) => {
                let (complete, rest) = header.fill(data);
                // An alert is shorter than a frame header.
                if !self.seen_settings && complete.is_none() && header.so_far().starts_with(&TLS_ALERT) {
                    self.state = State::Lost;
                    return (Some(Event::NotHttp2 { why: SPEAKS_TLS }), &[]);
                }
                (complete.and_then(|header| self.begin(header)), rest)
            }
            State::Settings { left, setting, settings } => {
                let (mut payload, rest) = split(data, *left);
                *left -= payload.len();
                while !payload.is_empty() {
                    let (complete, more) = setting.fill(payload);
                    payload = more;
                    let Some([a, b, value @ ..]) = complete else { continue };
                    let value = Some(u32::from_be_bytes(value));
                    // The last of several applies.
                    match u16::from_be_bytes([a, b]) {
                        MAX_CONCURRENT_STREAMS => settings.max_concurrent_streams = value,
                        INITIAL_WINDOW_SIZE => settings.initial_window_size = value,
                        _ => {}
                    }
                }
                if *left > 0 {
                    return (None, rest);
                }
                let event = Event::Settings(*settings);
                self.state = State::default();
                (Some(event), rest)
            }
            State::GoAway { left, payload } => {
                let (bytes, rest) = split(data, *left);
                *left -= bytes.len();
                let room = (GO_AWAY_FIXED + MAX_DEBUG_DATA).saturating_sub(payload.len());
                payload.extend_from_slice(split(bytes, room).0);
                if *left > 0 {
                    return (None, rest);
                }
                let event = go_away(payload).map(Event::GoAway);
                self.state = State::default();
                (event, rest)
            }
        }
    }

    /// Handles a complete frame header.
    fn begin(&mut self, header: [u8; HEADER]) -> Option<Event> {
        let FrameHeader { length, kind, flags, stream } = header.into();
        let is_settings = kind == SETTINGS && flags & ACK == 0;
        // RFC 9113, section 3.4: the server's preface is a SETTINGS frame, which may be empty.
        // (SETTINGS that begin like an alert would be longer than a frame may be.)
        if !self.seen_settings && (!is_settings || header.starts_with(&TLS_ALERT)) {
            self.state = State::Lost;
            let why = if header.starts_with(b"HTTP/") {
                "the server answered with HTTP/1"
            } else if header.starts_with(&TLS_ALERT) {
                SPEAKS_TLS
            } else {
                "the server did not begin with a SETTINGS frame"
            };
            return Some(Event::NotHttp2 { why });
        }
        self.seen_settings = true;
        match kind {
            HEADERS => self.block = length,
            CONTINUATION => self.block = self.block.saturating_add(length),
            _ => {}
        }
        self.largest_block = self.largest_block.max(self.block);
        // Trailers end their stream.
        if kind == HEADERS && flags & END_STREAM == 0 && self.interim.is_too_many(stream, self.open_streams) {
            self.state = State::Lost;
            return Some(Event::TooManyInterim);
        }
        // SETTINGS of an invalid length are ignored; h2 will close the connection.
        let is_settings = is_settings && length % SETTING == 0;
        self.state = match (is_settings, kind, length) {
            (_, _, 0) => State::default(),
            (true, ..) => {
                State::Settings { left: length, setting: Partial::default(), settings: Settings::default() }
            }
            (_, GO_AWAY, _) => State::GoAway { left: length, payload: Vec::new() },
            _ => State::Skip(length),
        };
        match (is_settings, kind, length) {
            (true, _, 0) => Some(Event::Settings(Settings::default())),
            (false, SETTINGS, 0) => Some(Event::SettingsAck),
            _ => None,
        }
    }
}

fn go_away(payload: &[u8]) -> Option<GoAway> {
    let (&[i0, i1, i2, i3, c0, c1, c2, c3], debug_data) = payload.split_first_chunk::<GO_AWAY_FIXED>()?;
    Some(GoAway {
        // The first bit is reserved.
        last_stream_id: u32::from_be_bytes([i0, i1, i2, i3]) & (u32::MAX >> 1),
        code: u32::from_be_bytes([c0, c1, c2, c3]),
        debug_data: Bytes::copy_from_slice(debug_data),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    fn setting(id: u16, value: u32) -> Vec<u8> {
        [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
    }

    fn settings(max_concurrent_streams: Option<u32>, initial_window_size: Option<u32>) -> Event {
        Event::Settings(Settings { max_concurrent_streams, initial_window_size })
    }

    fn go_away_payload(last: u32, code: u32, debug: &[u8]) -> Vec<u8> {
        [&last.to_be_bytes()[..], &code.to_be_bytes(), debug].concat()
    }

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut parser = FrameParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, |event| events.push(event));
        }
        events
    }

    /// One of each kind of frame, and the expected events.
    fn conversation() -> (Vec<u8>, Vec<Event>) {
        let two_settings = [setting(4, 1 << 20), setting(3, 7)].concat();
        let bytes = [
            frame(4, 0, &[]),
            frame(4, ACK, &[]),
            // A DATA payload that looks like a GOAWAY.
            frame(0, 0, &frame(7, 0, &go_away_payload(1, 2, b"fake"))),
            frame(4, 0, &two_settings),
            frame(6, 0, &[1; 8]),
            frame(4, 0, &setting(4, 9)),
            frame(7, 0, &go_away_payload(1 << 31 | 5, 11, b"too_many_pings")),
            frame(0, 1, &vec![0xff; 70_000]),
            frame(7, 0, &go_away_payload(3, 0, &[b'x'; 3000])),
        ]
        .concat();
        let events = vec![
            settings(None, None),
            Event::SettingsAck,
            settings(Some(7), Some(1 << 20)),
            settings(None, Some(9)),
            Event::GoAway(GoAway {
                last_stream_id: 5,
                code: 11,
                debug_data: Bytes::from_static(b"too_many_pings"),
            }),
            Event::GoAway(GoAway {
                last_stream_id: 3,
                code: 0,
                debug_data: vec![b'x'; MAX_DEBUG_DATA].into(),
            }),
        ];
        (bytes, events)
    }

    #[test]
    fn finds_settings_and_goaway_only() {
        let (bytes, events) = conversation();
        assert_eq!(parse([&bytes[..]]), events);
    }

    #[test]
    fn frames_may_be_cut_after_every_byte() {
        let (bytes, events) = conversation();
        assert_eq!(parse(bytes.chunks(1)), events);
        for at in (0..bytes.len()).step_by(if bytes.len() > 10_000 { 7 } else { 1 }) {
            assert_eq!(parse([&bytes[..at], &bytes[at..]]), events, "cut at {at}");
        }
    }

    #[test]
    fn frames_may_be_cut_at_random() {
        let (bytes, events) = conversation();
        for seed in 1..300_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut rest = &bytes[..];
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Usually tiny pieces, sometimes a large one.
                let most = if random % 10 == 0 { 60_000 } else { 24 };
                let (piece, more) = split(rest, 1 + (random >> 8) as usize % most);
                pieces.push(piece);
                rest = more;
            }
            assert_eq!(parse(pieces), events, "seed {seed}");
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        for seed in 1..200_u64 {
            let mut random = seed;
            let noise: Vec<u8> = (0..2_000)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (random >> 56) as u8
                })
                .collect();
            // After a SETTINGS frame, so that parsing continues.
            let bytes = [frame(4, 0, &[]), noise].concat();
            assert_eq!(parse(bytes.chunks(13)), parse([&bytes[..]]), "seed {seed}");
        }
    }

    #[test]
    fn a_server_that_speaks_http1_is_recognised() {
        let events = parse([&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &frame(4, 0, &[])]);
        assert_eq!(events, [Event::NotHttp2 { why: "the server answered with HTTP/1" }]);
    }

    #[test]
    fn the_first_frame_must_be_settings() {
        for first in [frame(7, 0, &go_away_payload(0, 0, b"")), frame(4, ACK, &[])] {
            let events = parse([&first[..], &frame(4, 0, &[])]);
            assert_eq!(events, [Event::NotHttp2 { why: "the server did not begin with a SETTINGS frame" }]);
        }
    }

    #[test]
    fn a_tls_alert_is_recognised_at_any_split() {
        // The bytes of a frame header: SETTINGS of more than a million bytes.
        let alert = [0x15, 0x03, 0x03, 4, 0, 0, 0, 0, 0];
        for at in 0..=alert.len() {
            let (first, rest) = alert.split_at(at);
            assert_eq!(parse([first, rest]), [Event::NotHttp2 { why: SPEAKS_TLS }], "cut at {at}");
        }
    }

    #[test]
    fn settings_of_a_wrong_length_are_ignored() {
        assert_eq!(parse([&frame(4, 0, &[0; 7])[..], &frame(4, 0, &[])]), [settings(None, None)]);
    }

    #[test]
    fn a_goaway_too_short_to_be_one_is_ignored() {
        assert_eq!(
            parse([&frame(4, 0, &[])[..], &frame(7, 0, &[0; 7]), &frame(4, 0, &setting(3, 1))]),
            [settings(None, None), settings(Some(1), None)]
        );
    }
}
