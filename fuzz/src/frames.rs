//! The frame tap: the frames that it finds in the bytes of either side of an HTTP/2 connection.

use bytes::Bytes;
use proxyless_sans_io::Rng;
use proxyless_transport::fuzzing::{Received, received, sent};

/// The length of the client's connection preface.
const PREFACE: usize = 24;
/// The maximum length of the stored debug data of a GOAWAY.
const DEBUG_DATA: usize = 1024;

/// A seed (one byte), then the bytes that a server sends, or that the client sends after its preface.
///
/// Properties: no panic; whole, split at random and byte by byte the tap finds the same frames as a direct parser.
pub fn frame_tap(data: &[u8]) {
    let Some((&seed, data)) = data.split_first() else { return };
    let mut expected = read_received(data);
    let in_one_piece = found(received([data]));
    // The reference does not count interim responses: beyond the limit only the frames before it are compared.
    if in_one_piece.last() == Some(&Found::TooManyInterim) {
        expected.truncate(in_one_piece.len() - 1);
        expected.push(Found::TooManyInterim);
    }
    assert_eq!(in_one_piece, expected, "in one piece");
    assert_eq!(found(received(data.chunks(1))), expected, "byte by byte");
    assert_eq!(found(received(cut(data, seed))), expected, "in parts");
    let data = &[&[b'P'; PREFACE], data].concat();
    let expected = read_sent(data);
    assert_eq!(sent([data.as_slice()]), expected, "in one piece");
    assert_eq!(sent(data.chunks(1)), expected, "byte by byte");
    assert_eq!(sent(cut(data, seed)), expected, "in parts");
}

/// The same bytes in parts of random length.
fn cut(mut data: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut rng = Rng::new(u64::from(seed));
    let mut parts = Vec::new();
    while !data.is_empty() {
        let (part, rest) = data.split_at(1 + rng.below(data.len().min(20) as u64) as usize);
        parts.push(part);
        data = rest;
    }
    parts
}

/// A frame of interest, as the reference sees it.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Settings(Option<u32>, Option<u32>),
    SettingsAck,
    GoAway { last_stream_id: u32, code: u32, debug_data: Bytes },
    NotHttp2,
    TooManyInterim,
}

fn found(received: Vec<Received>) -> Vec<Found> {
    let found = |received| match received {
        Received::Settings(streams, window) => Found::Settings(streams, window),
        Received::SettingsAck => Found::SettingsAck,
        Received::GoAway(go_away) => Found::GoAway {
            last_stream_id: go_away.last_stream_id,
            code: go_away.code,
            debug_data: go_away.debug_data,
        },
        Received::NotHttp2 => Found::NotHttp2,
        Received::TooManyInterim => Found::TooManyInterim,
    };
    received.into_iter().map(found).collect()
}

/// A frame (RFC 9113, section 4.1), whose payload may be incomplete, and the bytes after it.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    /// `None` if it is incomplete.
    payload: Option<&'a [u8]>,
    rest: &'a [u8],
}

fn frame(data: &[u8]) -> Option<Frame<'_>> {
    let (&[a, b, c, kind, flags, s0, s1, s2, s3], rest) = data.split_first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    Some(Frame {
        kind,
        flags,
        // The reserved bit is ignored.
        stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        payload: rest.get(..length),
        rest: rest.get(length..).unwrap_or_default(),
    })
}

/// The frames of a server, parsed from all bytes at once.
fn read_received(mut data: &[u8]) -> Vec<Found> {
    // A TLS alert.
    if data.starts_with(&[0x15, 0x03]) {
        return vec![Found::NotHttp2];
    }
    let mut found = Vec::new();
    let mut is_first = true;
    while let Some(Frame { kind, flags, payload, rest, .. }) = frame(data) {
        let is_settings = kind == 4 && flags & 1 == 0;
        if is_first && !is_settings {
            return vec![Found::NotHttp2];
        }
        is_first = false;
        let Some(payload) = payload else { break };
        if is_settings && payload.len().is_multiple_of(6) {
            let value = |wanted: u8| {
                let of = |setting: &&[u8]| setting[..2] == [0, wanted];
                let setting = payload.chunks(6).rev().find(of)?;
                Some(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
            };
            found.push(Found::Settings(value(3), value(4)));
        }
        if kind == 4 && !is_settings && payload.is_empty() {
            found.push(Found::SettingsAck);
        }
        if kind == 7 && payload.len() >= 8 {
            let number =
                |at: usize| payload[at..at + 4].iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
            let debug_data = payload[8..].iter().copied().take(DEBUG_DATA).collect();
            found.push(Found::GoAway { last_stream_id: number(0) % (1 << 31), code: number(4), debug_data });
        }
        data = rest;
    }
    found
}

/// The highest stream with complete HEADERS, and every stream whose RST_STREAM has begun.
fn read_sent(data: &[u8]) -> (Option<u32>, Vec<u32>) {
    let (mut begun, mut reset) = (None, Vec::new());
    let mut data = &data[PREFACE..];
    while let Some(Frame { kind, stream, payload, rest, .. }) = frame(data) {
        if kind == 3 {
            reset.push(stream);
        }
        if payload.is_none() {
            break;
        }
        if kind == 1 {
            begun = begun.max(Some(stream));
        }
        data = rest;
    }
    (begun, reset)
}
