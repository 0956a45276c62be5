//! Session cookies that a backend forged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, BlackHole};
use tonic::Request;

use crate::Turn;
use crate::case::{options, plane_of, start};
use crate::common::raw::{data, headers};
use crate::common::{PATIENCE, SERVICE, TestResult};
use crate::server::Behaviour;

/// Neither an address that EDS does not list nor nonsense leads anywhere but to the endpoints of the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a55_forged_cookies_lead_nowhere_else() -> TestResult {
    let turn = Turn::take().await;
    let (trap, healthy) = (BlackHole::start().await?, Backend::start("healthy").await?);
    let encoded = |text: String| STANDARD.encode(text);
    let forged = [
        encoded(format!("{};cluster", trap.address())),
        encoded(format!("{}", trap.address())),
        encoded("127.0.0.1:99999;cluster".into()),
        encoded(format!("{};cluster", ["127.0.0.1:1"; 100].join(","))),
        "%%%".into(),
        String::new(),
    ];
    for value in forged {
        let cookie = format!("sid={value}; Path=/");
        let hostile = start(Behaviour::Reply(Box::new(move |stream| {
            let head =
                [(":status", "200"), ("content-type", "application/grpc"), ("set-cookie", cookie.as_str())];
            [headers(stream, 0, &head), data(stream, 0, &[0; 5]), headers(stream, 1, &[("grpc-status", "0")])]
                .concat()
        })))
        .await;
        let plane = plane_of(&[hostile.address(), healthy.address()]).await;
        plane.set(listener_with(SERVICE, &connection_manager("route").filter(stateful_session("sid"))));
        let channel = options(&plane).build()?;
        for _ in 0..8 {
            let mut request = Request::new(EchoRequest::new("hello"));
            request.set_timeout(PATIENCE);
            request.metadata_mut().insert("cookie", format!("sid={value}").parse()?);
            EchoClient::new(channel.clone()).unary(request).await?;
        }
    }
    assert_eq!(trap.connections(), 0);
    turn.end();
    Ok(())
}
