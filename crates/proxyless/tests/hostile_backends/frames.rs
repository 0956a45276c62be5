//! Frames that HTTP/2 does not allow, resets, windows and SETTINGS of all kinds.

use tonic::Code;

use crate::Turn;
use crate::answers::EMPTY;
use crate::case::{Case, LAST, play};
use crate::common::raw::{self, Reply, data, frame, grpc_headers, headers, reset, success};
use crate::server::Behaviour;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const ACK: u8 = 1;

pub(crate) fn good(stream: u32) -> Vec<u8> {
    match success(stream) {
        Reply::Frames(frames) | Reply::Close(frames) => frames,
    }
}

/// One of SETTINGS.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Frames that end the whole connection with PROTOCOL_ERROR or another code: its RPCs are UNAVAILABLE, as their fate on
/// the server is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protocol_violations_end_the_connection() {
    let turn = Turn::take().await;
    let broken = |name, frames: fn(u32) -> Vec<u8>| {
        Case::reply(name, Code::Unavailable, "the client closed the connection with", frames)
    };
    play(vec![
        broken("DATA before headers", |stream| data(stream, 0, EMPTY)),
        broken("DATA of an idle stream", |_| data(99, 0, EMPTY)),
        broken("DATA of stream 0", |_| data(0, 0, EMPTY)),
        broken("HEADERS of an idle stream", |_| grpc_headers(99)),
        broken("HEADERS of a stream of the server", |_| grpc_headers(2)),
        broken("HEADERS of stream 0", |_| grpc_headers(0)),
        broken("RST_STREAM of an idle stream", |_| reset(99, 8)),
        broken("RST_STREAM of stream 0", |_| reset(0, 8)),
        broken("RST_STREAM of three bytes", |stream| frame(RST_STREAM, 0, stream, &[0; 3])),
        broken("WINDOW_UPDATE of an idle stream", |_| frame(WINDOW_UPDATE, 0, 99, &[0, 0, 0, 1])),
        broken("WINDOW_UPDATE of zero", |_| frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        broken("WINDOW_UPDATE overflow", |_| frame(WINDOW_UPDATE, 0, 0, &[127, 255, 255, 255])),
        broken("PUSH_PROMISE", |stream| {
            let block = raw::header_block(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "x"),
            ]);
            frame(PUSH_PROMISE, END_HEADERS, stream, &[&[0, 0, 0, 2], &block[..]].concat())
        }),
        broken("SETTINGS of five bytes", |_| frame(SETTINGS, 0, 0, &[0; 5])),
        broken("SETTINGS of a stream", |stream| frame(SETTINGS, 0, stream, &[])),
        broken("SETTINGS ACK with a payload", |_| frame(SETTINGS, ACK, 0, &setting(3, 1))),
        broken("SETTINGS ACK that nobody asked for", |_| frame(SETTINGS, ACK, 0, &[])),
        broken("initial window beyond 2 GiB", |_| frame(SETTINGS, 0, 0, &setting(4, 1 << 31))),
        broken("largest frame of one byte", |_| frame(SETTINGS, 0, 0, &setting(5, 1))),
        broken("PING of seven bytes", |_| frame(PING, 0, 0, &[0; 7])),
        broken("PING of a stream", |stream| frame(PING, 0, stream, &[0; 8])),
        broken("GOAWAY of a stream", |stream| frame(GOAWAY, 0, stream, &[0; 8])),
        broken("GOAWAY of four bytes", |_| frame(GOAWAY, 0, 0, &[0; 4])),
        broken("CONTINUATION without HEADERS", |stream| frame(CONTINUATION, END_HEADERS, stream, &[0x88])),
        broken("DATA between HEADERS and CONTINUATION", |stream| {
            [frame(HEADERS, 0, stream, &[0x88]), data(stream, 0, EMPTY)].concat()
        }),
        broken("padding longer than its frame", |stream| {
            [grpc_headers(stream), frame(DATA, PADDED, stream, &[200, 1])].concat()
        }),
        broken("frame beyond the largest", |stream| data(stream, 0, &[0; 16_385])),
        broken("frame that claims 16 MiB", |stream| {
            [&[255, 255, 255, DATA, 0], &stream.to_be_bytes()[..]].concat()
        }),
        broken("HPACK index 0", |stream| frame(HEADERS, END_HEADERS, stream, &[0x80])),
        broken("HPACK index that is not there", |stream| {
            frame(HEADERS, END_HEADERS, stream, &[0x88, 0xff, 0x20])
        }),
        broken("HPACK integer without end", |stream| frame(HEADERS, END_HEADERS, stream, &[0xff; 64])),
        broken("HPACK string beyond its block", |stream| frame(HEADERS, END_HEADERS, stream, &[0, 100, 1])),
        broken("HPACK bad Huffman code", |stream| {
            frame(HEADERS, END_HEADERS, stream, &[0, 0x84, 255, 255, 255, 255, 1, b'x'])
        }),
        broken("HPACK table of 1 GiB", |stream| {
            frame(HEADERS, END_HEADERS, stream, &[0x3f, 0xe1, 255, 255, 255, 3])
        }),
        broken("garbage", |_| b"\x13\x37".repeat(50)),
    ])
    .await;
    turn.end();
}

/// Resets with each code, before and after headers (PROTOCOL-HTTP2, "Errors").
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_are_mapped_and_named() {
    let turn = Turn::take().await;
    let code_of = |reset| match reset {
        7 => Code::Unavailable,
        8 => Code::Cancelled,
        11 => Code::ResourceExhausted,
        12 => Code::PermissionDenied,
        _ => Code::Internal,
    };
    let mut cases = Vec::new();
    for code in (0..15).chain([u32::MAX]) {
        let cause = "the server reset the stream with";
        if code != 7 {
            cases.push(Case::reply(format!("reset with {code}"), code_of(code), cause, move |stream| {
                reset(stream, code)
            }));
        }
        cases.push(Case::reply(
            format!("reset with {code} after headers"),
            code_of(code),
            cause,
            move |stream| [grpc_headers(stream), data(stream, 0, EMPTY), reset(stream, code)].concat(),
        ));
    }
    let refused = Case::reply("refused", Code::DeadlineExceeded, "REFUSED_STREAM", |stream| reset(stream, 7));
    cases.push(refused.copies(11).or(Code::Unavailable));
    // RFC 9113, section 8.1: a server that has answered may ask the client to stop sending.
    cases.push(Case::reply("reset after the response", Code::Ok, "", |stream| {
        [good(stream), reset(stream, 0)].concat()
    }));
    cases.push(Case::reply("a thousand resets", Code::Internal, "", |stream| reset(stream, 2).repeat(1000)));
    play(cases).await;
    turn.end();
}

/// Odd things that HTTP/2 allows: RPCs succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_odd_but_allowed_does_not_matter() {
    let turn = Turn::take().await;
    let fine = |name, frames: fn(u32) -> Vec<u8>| Case::reply(name, Code::Ok, "", frames);
    play(vec![
        fine("unknown frames", |stream| {
            [frame(200, 255, stream, &[1; 100]).repeat(100), good(stream)].concat()
        }),
        fine("PRIORITY", |stream| {
            [frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 1]).repeat(100), good(stream)].concat()
        }),
        fine("PRIORITY of an idle stream", |stream| {
            [frame(PRIORITY, 0, 999, &[0, 0, 0, 0, 1]), good(stream)].concat()
        }),
        fine("PING ACK that nobody asked for", |stream| {
            [frame(PING, ACK, 0, &[1; 8]).repeat(100), good(stream)].concat()
        }),
        fine("unknown settings", |stream| [frame(SETTINGS, 0, 0, &setting(999, 7)), good(stream)].concat()),
        fine("padding", |stream| {
            let padded = frame(DATA, PADDED, stream, &[&[250][..], EMPTY, &[0; 250]].concat());
            [grpc_headers(stream), padded, headers(stream, LAST, &[("grpc-status", "0")])].concat()
        }),
        fine("empty DATA", |stream| {
            // h2 allows a hundred on a connection.
            let empty = data(stream, 0, b"").repeat(2);
            [
                grpc_headers(stream),
                empty,
                data(stream, 0, EMPTY),
                headers(stream, LAST, &[("grpc-status", "0")]),
            ]
            .concat()
        }),
        fine("DATA after the end", |stream| [good(stream), data(stream, 0, EMPTY)].concat())
            .or(Code::Unavailable),
        fine("a second response", |stream| [good(stream), good(stream)].concat()).or(Code::Unavailable),
        fine("window flapping", |stream| {
            let flap: Vec<u8> = [0, 1, 65_535, 0, 1 << 20]
                .iter()
                .flat_map(|size| frame(SETTINGS, 0, 0, &setting(4, *size)))
                .collect();
            [flap.repeat(20), good(stream)].concat()
        }),
        fine("stream limit flapping", |stream| {
            let flap: Vec<u8> = [0, 1, 100, 0, 100]
                .iter()
                .flat_map(|limit| frame(SETTINGS, 0, 0, &setting(3, *limit)))
                .collect();
            [flap.repeat(20), good(stream)].concat()
        }),
        fine("header table flapping", |stream| {
            let flap: Vec<u8> = [0, 4096, 1 << 30]
                .iter()
                .flat_map(|size| frame(SETTINGS, 0, 0, &setting(1, *size)))
                .collect();
            [flap.repeat(20), good(stream)].concat()
        }),
    ])
    .await;
    turn.end();
}

/// Windows that are closed or tiny, limits of streams, and windows that overflow, from the first SETTINGS on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiny_windows_and_limits_hold_up_nobody_else() {
    let turn = Turn::take().await;
    let settings = |name, code, cause, values: Vec<u8>| {
        Case::new(name, code, cause, move || Behaviour::Settings(values.clone()))
    };
    let late = Code::DeadlineExceeded;
    play(vec![
        settings("window of 0", late, "waiting for the response", setting(4, 0)),
        settings("window of 1", late, "waiting for the response", setting(4, 1)),
        settings("no streams", late, "waiting for a stream of the connection", setting(3, 0)),
        settings("one stream", Code::Ok, "", setting(3, 1)),
        settings("header list of 0", Code::Ok, "", setting(6, 0)),
        settings("push", Code::Ok, "", setting(2, 1)),
        settings("window beyond 2 GiB", Code::Unavailable, "", setting(4, u32::MAX)),
        Case::reply("stream window overflow", late, "waiting for the response", |stream| {
            frame(WINDOW_UPDATE, 0, stream, &[127, 255, 255, 255])
        }),
        Case::reply("WINDOW_UPDATE of zero for a stream", Code::Unavailable, "violated HTTP/2", |stream| {
            frame(WINDOW_UPDATE, 0, stream, &[0; 4])
        }),
        Case::reply("never answers", late, "waiting for the response", |_| Vec::new()),
        Case::reply("headers and nothing else", late, "while receiving the response", grpc_headers),
    ])
    .await;
    turn.end();
}
