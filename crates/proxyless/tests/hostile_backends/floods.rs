//! Backends that never stop sending.

use tonic::Code;

use crate::Turn;
use crate::case::{Case, play};
use crate::common::raw::{data, frame, grpc_headers, headers, reset};
use crate::frames::setting;
use crate::memory::Measure;
use crate::server::Behaviour;

/// The memory limit of all cases of a table; twenty backends run at once.
const MOST: usize = 160 << 20;
/// The memory that may remain after a table: that of the runtime and the libraries.
const SLACK: usize = 8 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_end_with_the_deadline_or_the_connection_and_take_little_memory() {
    let turn = Turn::take().await;
    let measure = Measure::start();
    type Frames = fn(u32) -> Vec<u8>;
    let nothing: Frames = |_| Vec::new();
    let flood = |name, first: Frames, again: Frames| {
        let behaviour = move || Behaviour::Flood(Box::new(first), Box::new(again));
        // Some end the connection (by h2), others only end with the deadline.
        Case::new(name, Code::DeadlineExceeded, "", behaviour).or(Code::Unavailable)
    };
    play(vec![
        flood("SETTINGS without end", nothing, |_| frame(4, 0, 0, &setting(4, 65_535)).repeat(100)),
        flood("PING without end", nothing, |_| frame(6, 0, 0, &[1; 8]).repeat(100)),
        flood("WINDOW_UPDATE without end", nothing, |stream| frame(8, 0, stream, &[0, 0, 0, 1]).repeat(100)),
        flood("PRIORITY without end", nothing, |stream| frame(2, 0, stream, &[0, 0, 0, 0, 1]).repeat(100)),
        flood("unknown frames without end", nothing, |stream| frame(77, 0, stream, &[1; 1000]).repeat(10)),
        flood("GOAWAY without end", nothing, |_| {
            frame(7, 0, 0, &[127, 255, 255, 255, 0, 0, 0, 0]).repeat(100)
        }),
        flood("RST_STREAM without end", nothing, |stream| reset(stream, 8).repeat(100)).or(Code::Cancelled),
        flood("100 without end", nothing, |stream| headers(stream, 0, &[(":status", "100")]).repeat(100)),
        flood(
            "CONTINUATION without end",
            |stream| frame(1, 0, stream, &[0x88]),
            |stream| frame(9, 0, stream, &[]).repeat(100),
        ),
        flood(
            "headers without end",
            |stream| frame(1, 0, stream, &[0x88]),
            |stream| frame(9, 0, stream, &crate::common::raw::header_block(&[("x-name", "value"); 500])),
        ),
        flood("empty DATA without end", grpc_headers, |stream| data(stream, 0, b"").repeat(100)),
        flood("padding without end", grpc_headers, |stream| {
            frame(0, 8, stream, &[&[255][..], &[0; 255]].concat()).repeat(10)
        }),
        // A flood that outruns its reader also breaks flow control.
        flood("messages without end", grpc_headers, |stream| data(stream, 0, &[0; 5 * 1000]))
            .or(Code::Internal),
        flood("large messages without end", grpc_headers, |stream| {
            let message = [&[0, 0, 0, 0x3f, 0xfb][..], &[0x12, 0xf8, 0x7f], &[b'x'; 16_376]].concat();
            data(stream, 0, &message[..16_384])
        })
        .or(Code::Internal),
        flood(
            "a message without end",
            |stream| [grpc_headers(stream), data(stream, 0, &[0, 255, 255, 255, 255])].concat(),
            |stream| data(stream, 0, &[1; 16_384]),
        )
        .or(Code::OutOfRange)
        .in_other_words(),
        flood(
            "DATA of a stream that is over",
            |stream| reset(stream, 8),
            |stream| data(stream, 0, &[1; 100]).repeat(10),
        )
        .or(Code::Cancelled),
        flood(
            "error page without end",
            |stream| headers(stream, 0, &[(":status", "503"), ("content-type", "text/html")]),
            |stream| data(stream, 0, &[b'<'; 16_384]),
        ),
    ])
    .await;
    assert!(measure.peak() < MOST, "{} bytes", measure.peak());
    measure.returned(SLACK).await.expect("memory is given back");
    turn.end();
}
