//! Responses whose headers or trailers are not those of a gRPC server.

use tonic::Code;

use crate::Turn;
use crate::case::{Case, LAST, play};
use crate::common::raw::{self, data, grpc_headers, header_block, headers};

const OK: (&str, &str) = (":status", "200");
const GRPC: (&str, &str) = ("content-type", "application/grpc");
/// An empty message.
pub(crate) const EMPTY: &[u8] = &[0; 5];

/// A response with one message up to its trailers.
fn begun(stream: u32) -> Vec<u8> {
    [grpc_headers(stream), data(stream, 0, EMPTY)].concat()
}

/// A response that ends with these trailers.
fn trailed(fields: &'static [(&'static str, &'static str)]) -> impl Fn(u32) -> Vec<u8> + Clone {
    move |stream| [begun(stream), headers(stream, LAST, fields)].concat()
}

/// A response that is only headers.
fn trailers_only(fields: &'static [(&'static str, &'static str)]) -> impl Fn(u32) -> Vec<u8> + Clone {
    move |stream| headers(stream, LAST, fields)
}

/// A good response after these frames.
fn good_after(before: impl Fn(u32) -> Vec<u8> + Clone) -> impl Fn(u32) -> Vec<u8> + Clone {
    move |stream| [before(stream), begun(stream), headers(stream, LAST, &[("grpc-status", "0")])].concat()
}

/// http-grpc-status-mapping.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_statuses_are_mapped_and_named() {
    let turn = Turn::take().await;
    let table = [
        ("204", Code::Unknown),
        ("302", Code::Unknown),
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("418", Code::Unknown),
        ("429", Code::Unavailable),
        ("500", Code::Unknown),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("999", Code::Unknown),
    ];
    let cases = table.map(|(status, code)| {
        Case::reply(format!("http-{status}"), code, "not a gRPC response: HTTP status", move |stream| {
            headers(stream, LAST, &[(":status", status), ("content-type", "text/plain")])
        })
    });
    play(cases.into()).await;
    turn.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_headers_and_trailers_end_rpcs_with_their_cause() {
    let turn = Turn::take().await;
    const STATUS_0: (&str, &str) = ("grpc-status", "0");
    // Some ways of being malformed end the stream; for others h2 gives the connection up.
    let malformed = "the response is malformed";
    let violated = "with PROTOCOL_ERROR: the server violated HTTP/2";
    play(vec![
        Case::reply("html", Code::Unknown, "text/html", |stream| {
            let fields = [OK, ("content-type", "text/html")];
            [headers(stream, 0, &fields), data(stream, LAST, b"<html>")].concat()
        }),
        Case::reply("grpc-web", Code::Unknown, "application/grpc-web", |stream| {
            [headers(stream, 0, &[OK, ("content-type", "application/grpc-web")]), data(stream, 0, EMPTY)]
                .concat()
        }),
        Case::reply("no content-type", Code::Ok, "", |stream| {
            let head = headers(stream, 0, &[OK]);
            [head, data(stream, 0, EMPTY), headers(stream, LAST, &[STATUS_0])].concat()
        }),
        Case::reply("two content-types", Code::Unknown, "text/html", |stream| {
            let fields = [OK, ("content-type", "text/html"), GRPC];
            [headers(stream, 0, &fields), data(stream, LAST, b"<html>")].concat()
        }),
        Case::reply("no :status", Code::Internal, malformed, |stream| {
            [headers(stream, 0, &[GRPC]), data(stream, 0, EMPTY), headers(stream, LAST, &[STATUS_0])].concat()
        }),
        Case::reply(":status that is not a number", Code::Unavailable, violated, |stream| {
            headers(stream, LAST, &[(":status", "abc"), GRPC, STATUS_0])
        }),
        Case::reply(":status twice", Code::Internal, malformed, |stream| {
            headers(stream, LAST, &[OK, OK, GRPC, STATUS_0])
        }),
        Case::reply("unknown pseudo-header", Code::Unavailable, violated, |stream| {
            headers(stream, LAST, &[OK, (":odd", "1"), GRPC, STATUS_0])
        }),
        Case::reply("name in upper case", Code::Unavailable, violated, |stream| {
            headers(stream, LAST, &[OK, ("X-Upper", "1"), GRPC, STATUS_0])
        }),
        Case::reply("connection header", Code::Internal, malformed, |stream| {
            headers(stream, LAST, &[OK, ("connection", "close"), GRPC, STATUS_0])
        }),
        Case::reply("line break in a value", Code::Unavailable, violated, |stream| {
            headers(stream, LAST, &[OK, ("x-split", "a\r\nb: c"), GRPC, STATUS_0])
        }),
        Case::reply(
            "trailers before headers",
            Code::Internal,
            malformed,
            trailers_only(&[("x-before", "1")]),
        ),
        Case::reply(
            "trailers-only without :status",
            Code::Internal,
            malformed,
            trailers_only(&[GRPC, STATUS_0]),
        ),
        Case::reply("trailers-only OK", Code::Internal, "", trailers_only(&[OK, GRPC, STATUS_0]))
            .in_other_words(),
        Case::reply("trailers-only without grpc-status", Code::Unknown, "without grpc-status", |stream| {
            headers(stream, LAST, &[OK, GRPC])
        }),
        Case::reply("status that is not a number", Code::Unknown, "", trailed(&[("grpc-status", "abc")]))
            .in_other_words(),
        Case::reply("status beyond all codes", Code::Unknown, "", trailed(&[("grpc-status", "4294967296")]))
            .in_other_words(),
        Case::reply("negative status", Code::Unknown, "", trailed(&[("grpc-status", "-1")])).in_other_words(),
        Case::reply("empty status", Code::Unknown, "", trailed(&[("grpc-status", "")])).in_other_words(),
        Case::reply("status of other bytes", Code::Unknown, "", |stream| {
            let fields: [(&[u8], &[u8]); 3] =
                [(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-status", b"\xff\xfe")];
            raw::frame(1, 4 | LAST, stream, &header_block(&fields))
        })
        .in_other_words(),
        Case::reply(
            "two statuses",
            Code::NotFound,
            "",
            trailed(&[("grpc-status", "5"), ("grpc-status", "0")]),
        )
        .in_other_words(),
        Case::reply("message of broken percents", Code::Internal, "%zz%f", {
            trailed(&[("grpc-status", "13"), ("grpc-message", "%zz%f")])
        })
        .in_other_words(),
        Case::reply("message that is not UTF-8", Code::Unknown, "", {
            trailed(&[("grpc-status", "13"), ("grpc-message", "%ff%fe")])
        })
        .in_other_words(),
        Case::reply("details that are not Base64", Code::NotFound, "gone", {
            trailed(&[("grpc-status", "5"), ("grpc-message", "gone"), ("grpc-status-details-bin", "!!!")])
        })
        .in_other_words(),
        Case::reply("details of headers that are not Base64", Code::NotFound, "gone", {
            trailers_only(&[
                OK,
                GRPC,
                ("grpc-status", "5"),
                ("grpc-message", "gone"),
                ("grpc-status-details-bin", "a,b"),
            ])
        })
        .in_other_words(),
        Case::reply("OK with details that are not Base64", Code::Ok, "", {
            trailed(&[STATUS_0, ("grpc-status-details-bin", "!!!")])
        }),
        Case::reply("trailers with a pseudo-header", Code::Ok, "", trailed(&[OK, STATUS_0])),
        Case::reply("headers twice", Code::Internal, "", |stream| {
            [begun(stream), grpc_headers(stream), headers(stream, LAST, &[STATUS_0])].concat()
        }),
        Case::reply("no trailers", Code::Internal, "without trailers", |stream| {
            [begun(stream), data(stream, LAST, b"")].concat()
        }),
        Case::reply("100 and 103", Code::Ok, "", {
            good_after(|stream| {
                (100..104)
                    .filter(|code| *code != 101)
                    .flat_map(|code| headers(stream, 0, &[(":status", &code.to_string())]))
                    .collect()
            })
        }),
        Case::reply("two hundred 100s", Code::Ok, "", {
            good_after(|stream| headers(stream, 0, &[(":status", "100")]).repeat(200))
        }),
        Case::reply("100 that ends the stream", Code::Internal, malformed, |stream| {
            headers(stream, LAST, &[(":status", "100")])
        }),
        Case::reply("101", Code::Internal, malformed, |stream| headers(stream, LAST, &[(":status", "101")])),
        Case::reply("content-length too long", Code::Internal, "", |stream| {
            [headers(stream, 0, &[OK, GRPC, ("content-length", "6")]), data(stream, LAST, EMPTY)].concat()
        }),
        Case::reply("content-length too short", Code::Internal, "", |stream| {
            [headers(stream, 0, &[OK, GRPC, ("content-length", "4")]), data(stream, LAST, EMPTY)].concat()
        }),
        Case::reply("content-length that is not a number", Code::Internal, malformed, |stream| {
            headers(stream, LAST, &[OK, GRPC, ("content-length", "many"), STATUS_0])
        }),
        Case::reply("retry pushback of nonsense", Code::Unavailable, "busy", {
            trailers_only(&[
                OK,
                GRPC,
                ("grpc-status", "14"),
                ("grpc-message", "busy"),
                ("grpc-retry-pushback-ms", "99999999999999999999"),
            ])
        })
        .in_other_words(),
        Case::reply("forged cookies", Code::Ok, "", |stream| {
            let cookie = ("set-cookie", "sid=MTkyLjAuMi4xOjgw; Path=/");
            let head = headers(stream, 0, &[OK, GRPC, cookie, ("set-cookie", "sid=; Max-Age=-1")]);
            [head, data(stream, 0, EMPTY), headers(stream, LAST, &[STATUS_0])].concat()
        }),
    ])
    .await;
    turn.end();
}

/// Header blocks and trailers about the limit of 16 KiB, and far beyond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_headers_trailers_and_metrics_are_bounded() {
    let turn = Turn::take().await;
    let large = |name: &'static str, size: usize, code, cause| {
        let names: Vec<_> = (0..size / 100).map(|number| format!("x-{number:05}")).collect();
        let value = "v".repeat(60);
        Case::reply(format!("{name} of {size}"), code, cause, move |stream| {
            let many = names.iter().map(|name| (name.as_str(), value.as_str()));
            let fields = |more: &[(&'static str, &'static str)]| -> Vec<_> {
                more.iter().copied().chain(many.clone()).collect()
            };
            let block = |fields: Vec<(&str, &str)>| long_headers(stream, &header_block(&fields));
            match name {
                "headers" => [
                    block(fields(&[OK, GRPC])),
                    data(stream, 0, EMPTY),
                    headers(stream, LAST, &[("grpc-status", "0")]),
                ]
                .concat(),
                _ => {
                    let trailers = many.clone().chain([("grpc-status", "0")]).collect();
                    let mut trailers = block(trailers);
                    trailers[4] |= LAST;
                    [begun(stream), trailers].concat()
                }
            }
        })
    };
    let orca = |name: &'static str, bytes: Vec<u8>| {
        Case::reply(name, Code::Ok, "", move |stream| {
            let fields: [(&[u8], &[u8]); 2] =
                [(b"endpoint-load-metrics-bin", &bytes), (b"grpc-status", b"0")];
            let mut trailers = long_headers(stream, &header_block(&fields));
            trailers[4] |= LAST;
            [begun(stream), trailers].concat()
        })
    };
    play(vec![
        large("headers", 12 << 10, Code::Ok, ""),
        large("headers", 24 << 10, Code::ResourceExhausted, "larger than 16384 bytes"),
        large("headers", 60 << 10, Code::Unavailable, "far larger than 16384 bytes"),
        large("headers", 1 << 20, Code::Unavailable, "far larger than 16384 bytes"),
        large("trailers", 12 << 10, Code::Ok, ""),
        large("trailers", 24 << 10, Code::ResourceExhausted, "larger than 16384 bytes"),
        large("trailers", 60 << 10, Code::Unavailable, "far larger than 16384 bytes"),
        large("trailers", 1 << 20, Code::Unavailable, "far larger than 16384 bytes"),
        orca("ORCA of 12 KiB", b"QgwKAWsRAAAAAAAA8D8A".repeat(600)),
        orca("ORCA that is not Base64", b"!".repeat(12_000)),
        orca("ORCA of NaN", b"CQAAAAAAAPh/".to_vec()),
    ])
    .await;
    turn.end();
}

/// HEADERS and as many CONTINUATIONs as it takes.
pub(crate) fn long_headers(stream: u32, block: &[u8]) -> Vec<u8> {
    const MOST: usize = 16_384;
    let pieces: Vec<_> = block.chunks(MOST).collect();
    let last = pieces.len() - 1;
    let flags = |number| if number == last { 4 } else { 0 };
    let kind = |number| if number == 0 { 1 } else { 9 };
    pieces
        .iter()
        .enumerate()
        .flat_map(|(number, piece)| raw::frame(kind(number), flags(number), stream, piece))
        .collect()
}
