//! gRPC messages with a wrong length or encoding.

use tonic::Code;

use crate::Turn;
use crate::answers::EMPTY;
use crate::case::{Case, LAST, play};
use crate::common::raw::{data, grpc_headers, headers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_lie_are_errors() {
    let turn = Turn::take().await;
    // The body and the trailers; tonic makes the error.
    let body = |name, code, cause, bytes: &'static [u8]| {
        let frames = move |stream| {
            [grpc_headers(stream), data(stream, 0, bytes), headers(stream, LAST, &[("grpc-status", "0")])]
                .concat()
        };
        Case::reply(name, code, cause, frames).in_other_words()
    };
    play(vec![
        body("message of 4 GiB", Code::OutOfRange, "4294967295", &[0, 255, 255, 255, 255, 1, 2, 3]),
        body("message of 5 MiB", Code::OutOfRange, "too large", &[0, 0, 80, 0, 0, 1]),
        body("truncated message", Code::Internal, "", &[0, 0, 0, 0, 9, 1]),
        body("truncated prefix", Code::Internal, "", &[0, 0, 0]),
        body("no message", Code::Internal, "", b""),
        body("compressed without an encoding", Code::Internal, "", &[1, 0, 0, 0, 1, 1]),
        body("flag 255", Code::Internal, "", &[255, 0, 0, 0, 0]),
        body("not protobuf", Code::Internal, "", &[0, 0, 0, 0, 2, 255, 255]),
        body("message in single bytes", Code::Ok, "", EMPTY),
        Case::reply("gzip that nobody accepts", Code::Unimplemented, "gzip", |stream| {
            let fields =
                [(":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "gzip")];
            let trailers = headers(stream, LAST, &[("grpc-status", "0")]);
            [headers(stream, 0, &fields), data(stream, 0, &[1, 0, 0, 0, 1, 31]), trailers].concat()
        })
        .in_other_words(),
        Case::reply("unknown encoding", Code::Unimplemented, "rot13", |stream| {
            let fields =
                [(":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "rot13")];
            let trailers = headers(stream, LAST, &[("grpc-status", "0")]);
            [headers(stream, 0, &fields), data(stream, 0, &[1, 0, 0, 0, 1, 31]), trailers].concat()
        })
        .in_other_words(),
        Case::reply("truncated, and no trailers", Code::Internal, "without trailers", |stream| {
            [grpc_headers(stream), data(stream, LAST, &[0, 0, 0, 0, 9, 1])].concat()
        }),
        Case::reply("one byte a frame", Code::Ok, "", |stream| {
            let bytes: Vec<u8> = EMPTY.iter().flat_map(|byte| data(stream, 0, &[*byte])).collect();
            [grpc_headers(stream), bytes, headers(stream, LAST, &[("grpc-status", "0")])].concat()
        }),
    ])
    .await;
    turn.end();
}
