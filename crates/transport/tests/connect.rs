//! Connection attempts: the conditions for READY, and the failures.

mod support;

use std::time::Duration;

use proxyless_transport::{
    Address, ConnectError, ConnectOptions, Connecting, Connection, Connector, Stage, TcpConnector,
};
use support::{Raw, SETTINGS, TestBody, anywhere, connect, finished, listen, ping, pipe, raw};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Never connects.
struct BlackHole;

impl Connector for BlackHole {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_connection_is_ready_when_settings_arrive_and_not_before() {
    let (listener, address) = listen().await;
    let connecting = tokio::spawn(async move { connect(&address).await });
    let mut server = Raw::accept(&listener).await;
    server.read_kind(SETTINGS).await;
    // The client has done its part of the handshake.
    assert!(!connecting.is_finished());
    server.write(SETTINGS, 0, 0, &[]).await;
    assert!(connecting.await.expect("no panic").is_open());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_makes_the_attempt_time_out() {
    let (connector, _server) = pipe();
    let options = ConnectOptions { connect_timeout: Duration::from_secs(7), ..ConnectOptions::default() };
    let error = proxyless_transport::connect::<TestBody>(&connector, &anywhere(), &options)
        .await
        .expect_err("no SETTINGS");
    assert!(matches!(error, ConnectError::Timeout { stage: Stage::Settings, .. }));
    assert_eq!(
        error.to_string(),
        "ipv4:192.0.2.1:80: connected, but no HTTP/2 SETTINGS from the server within 7s"
    );
    finished(&options.tasks).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_syn_makes_the_attempt_time_out() {
    let error =
        proxyless_transport::connect::<TestBody>(&BlackHole, &anywhere(), &ConnectOptions::default()).await;
    assert_eq!(error.expect_err("no connection").to_string(), "ipv4:192.0.2.1:80: no connection within 20s");
}

#[tokio::test]
async fn a_dropped_attempt_leaves_nothing_behind() {
    let (connector, mut server) = pipe();
    let options = ConnectOptions::default();
    let attempt = tokio::spawn({
        let options = options.clone();
        async move { proxyless_transport::connect::<TestBody>(&connector, &anywhere(), &options).await.map(drop) }
    });
    // The preface is here, so the connection's task runs.
    server.read_exact(&mut [0; 24]).await.expect("a preface");
    attempt.abort();
    server.read_to_end(&mut Vec::new()).await.expect("the end");
    finished(&options.tasks).await;
}

#[tokio::test]
async fn refused_connections_say_so() {
    let (listener, address) = listen().await;
    drop(listener);
    let error = proxyless_transport::connect::<TestBody>(
        &TcpConnector::default(),
        &address,
        &ConnectOptions::default(),
    )
    .await;
    let text = error.expect_err("nobody listens").to_string();
    assert!(text.starts_with("ipv4:127.0.0.1:") && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_server_that_hangs_up_before_settings_is_named() {
    let (listener, address) = listen().await;
    let server = async { drop(listener.accept().await.expect("a client").0.read_exact(&mut [0; 24]).await) };
    let options = ConnectOptions::default();
    let connector = TcpConnector::default();
    let (error, ()) =
        tokio::join!(proxyless_transport::connect::<TestBody>(&connector, &address, &options), server);
    let text = error.expect_err("no SETTINGS").to_string();
    assert!(text.contains("HTTP/2 handshake failed: "), "{text}");
    assert!(text.contains("the server closed the connection") || text.contains("reset"), "{text}");
    assert!(text.ends_with(" before it sent anything (does it expect TLS?)"), "{text}");
    finished(&options.tasks).await;
}

#[tokio::test]
async fn an_http1_server_is_recognised() {
    let (connector, mut server) = pipe();
    server.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.expect("written");
    let options = ConnectOptions::default();
    let error = proxyless_transport::connect::<TestBody>(&connector, &anywhere(), &options)
        .await
        .expect_err("not HTTP/2");
    assert_eq!(
        error.to_string(),
        "ipv4:192.0.2.1:80: HTTP/2 handshake failed: the server answered with HTTP/1"
    );
    finished(&options.tasks).await;
}

#[tokio::test]
async fn a_tls_server_is_recognised() {
    // A fatal alert of TLS 1.2, then one with something behind it; all at once or in pieces.
    for (alert, piece) in
        [(&b"\x15\x03\x03\x00\x02\x02\x46"[..], 7), (b"\x15\x03\x01\x00\x02\x02\x46\x15\x03", 9)]
    {
        for piece in [piece, 1] {
            let (connector, mut server) = pipe();
            let options = ConnectOptions::default();
            let address = anywhere();
            let server = async {
                for bytes in alert.chunks(piece) {
                    // The client may have had enough of it.
                    let _ = server.write_all(bytes).await;
                    tokio::task::yield_now().await;
                }
                drop(server);
            };
            let (error, ()) = tokio::join!(
                proxyless_transport::connect::<TestBody>(&connector, &address, &options),
                server
            );
            assert_eq!(
                error.expect_err("not HTTP/2").to_string(),
                "ipv4:192.0.2.1:80: HTTP/2 handshake failed: the server speaks TLS: it answered with a TLS alert"
            );
            finished(&options.tasks).await;
        }
    }
}

#[tokio::test]
async fn malformed_settings_fail_the_attempt() {
    let (connector, server) = pipe();
    let options = ConnectOptions::default();
    let address = anywhere();
    let server = async {
        let mut server = Raw::begin(server).await;
        // Not a multiple of six bytes.
        server.write(SETTINGS, 0, 0, &[0; 7]).await;
        server.drained().await;
    };
    let (error, ()) =
        tokio::join!(proxyless_transport::connect::<TestBody>(&connector, &address, &options), server);
    let text = error.expect_err("broken SETTINGS").to_string();
    let reason = "the client closed the connection with PROTOCOL_ERROR: the server violated HTTP/2";
    assert!(text.ends_with(&format!("HTTP/2 handshake failed: {reason}")), "{text}");
    finished(&options.tasks).await;
}

#[tokio::test]
async fn goaway_right_after_settings_still_was_ready() {
    let (connector, server) = pipe();
    let options = ConnectOptions::default();
    let address = anywhere();
    let server = async {
        let mut server = Raw::begin(server).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        server.go_away(0, 0, b"max_age").await;
        server.drained().await;
    };
    let client = async {
        let connection: Connection<TestBody> =
            proxyless_transport::connect(&connector, &address, &options).await.expect("READY");
        connection.left_open().await;
        assert_eq!(connection.go_away().expect("a GOAWAY").debug_data, "max_age");
    };
    tokio::join!(client, server);
    finished(&options.tasks).await;
}

#[cfg(unix)]
#[tokio::test]
async fn unix_domain_sockets_work() {
    let path = std::env::temp_dir().join(format!("proxyless-transport-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = tokio::net::UnixListener::bind(&path).expect("a socket");
    let server = async {
        let mut server = Raw::begin(listener.accept().await.expect("a client").0).await;
        server.write(SETTINGS, 0, 0, &[]).await;
        let stream = server.next_request().await;
        server.respond(stream, support::END_STREAM).await;
        server
    };
    let address = Address::Unix(path.clone());
    let client = async {
        let connection = connect(&address).await;
        let response = connection.send(ping()).await.expect("a response");
        assert_eq!(response.status(), 200);
        connection
    };
    tokio::join!(client, server);
    std::fs::remove_file(&path).expect("cleaned up");
}

#[tokio::test]
async fn clients_advertise_their_windows() {
    let (_connection, mut server) = raw(&[]).await;
    let settings = server.read_kind(SETTINGS).await.payload;
    let window =
        settings.chunks(6).find(|setting| setting.starts_with(&[0, 4])).expect("INITIAL_WINDOW_SIZE");
    assert_eq!(window.get(2..), Some(&(1_u32 << 20).to_be_bytes()[..]));
}
