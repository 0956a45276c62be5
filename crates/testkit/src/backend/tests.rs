use std::future::Future;

use tokio_stream::StreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::*;
use crate::echo::{EchoClient, EchoRequest};
use crate::{BlackHole, dead_address};

async fn client(backend: &Backend) -> EchoClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", backend.address())).unwrap();
    EchoClient::new(endpoint.connect().await.unwrap())
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

#[tokio::test]
async fn it_echoes_once_often_and_in_both_ways() {
    let backend = Backend::start("one").await.unwrap();
    let mut client = client(&backend).await;
    let answer = client.unary(EchoRequest::new("hello")).await.unwrap();
    assert_eq!(answer.metadata().get("hostname").unwrap(), "one");
    let answer = answer.into_inner();
    assert_eq!((answer.message.as_str(), answer.backend.as_str()), ("hello", "one"));

    let request = EchoRequest { message: "again".into(), repeat: 3 };
    let answers: Vec<_> = client.repeat(request).await.unwrap().into_inner().collect().await;
    assert_eq!(answers.len(), 3);
    assert!(answers.into_iter().all(|a| a.unwrap().message == "again"));

    let requests = tokio_stream::iter(["a", "b"].map(EchoRequest::new));
    let answers: Vec<_> = client.chat(requests).await.unwrap().into_inner().collect().await;
    let messages: Vec<_> = answers.into_iter().map(|a| a.unwrap().message).collect();
    assert_eq!(messages, ["a", "b"]);
    assert_eq!(backend.count(), 3);
}

#[tokio::test]
async fn calls_are_remembered_with_their_metadata() {
    let backend = Backend::start("one").await.unwrap();
    let mut request = Request::new(EchoRequest::new("hello"));
    request.metadata_mut().insert("x-user", "me".parse().unwrap());
    client(&backend).await.unary(request).await.unwrap();
    let calls = backend.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].path(), "/proxyless.testkit.Echo/Unary");
    assert_eq!(calls[0].header("x-user"), Some("me"));
    assert!(calls[0].peer().ip().is_loopback());
}

#[tokio::test]
async fn a_killed_backend_resets_its_connections_and_refuses_until_restarted() {
    let backend = Backend::start("one").await.unwrap();
    let address = backend.address();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    backend.wait_connections(1).await.unwrap();
    let mut rpc_client = client(&backend).await;
    backend.hang();
    let call = tokio::spawn(async move { rpc_client.unary(EchoRequest::new("x")).await });
    backend.wait_in_flight(1).await.unwrap();

    backend.kill().await;
    assert!(in_time(call).await.unwrap().is_err());
    let mut buffer = [0; 64];
    let end = loop {
        match in_time(tokio::io::AsyncReadExt::read(&mut stream, &mut buffer)).await {
            Ok(0) => panic!("an orderly end"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(end, io::ErrorKind::ConnectionReset);
    assert_eq!((backend.in_flight(), backend.connections()), (0, 0));
    assert!(tokio::net::TcpStream::connect(address).await.is_err());

    backend.resume();
    backend.restart().await.unwrap();
    assert_eq!(backend.address(), address);
    client(&backend).await.unary(EchoRequest::new("x")).await.unwrap();
}

#[tokio::test]
async fn a_hung_backend_answers_when_it_resumes() {
    let backend = Backend::start("one").await.unwrap();
    let mut rpc_client = client(&backend).await;
    backend.hang();
    let call = tokio::spawn(async move { rpc_client.unary(EchoRequest::new("x")).await });
    backend.wait_in_flight(1).await.unwrap();
    assert!(!call.is_finished());
    backend.resume();
    in_time(call).await.unwrap().unwrap();
    backend.wait_in_flight(0).await.unwrap();
    assert_eq!(backend.peak(), 1);
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_is_not_in_flight() {
    let backend = Backend::start("one").await.unwrap();
    let mut rpc_client = client(&backend).await;
    backend.hang();
    let call = tokio::spawn(async move { rpc_client.unary(EchoRequest::new("x")).await });
    backend.wait_in_flight(1).await.unwrap();
    call.abort();
    backend.wait_in_flight(0).await.unwrap();
}

#[tokio::test]
async fn it_fails_as_told() {
    let backend = Backend::start("one").await.unwrap();
    let mut client = client(&backend).await;
    backend.fail_with(Code::PermissionDenied);
    let status: Status = client.unary(EchoRequest::new("x")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    backend.succeed();
    client.unary(EchoRequest::new("x")).await.unwrap();
    assert_eq!(backend.count(), 2);
}

#[tokio::test]
async fn a_goaway_lets_calls_end_and_then_the_connection() {
    let backend = Backend::start("one").await.unwrap();
    let mut rpc_client = client(&backend).await;
    backend.hang();
    let call = tokio::spawn(async move { rpc_client.unary(EchoRequest::new("x")).await });
    backend.wait_in_flight(1).await.unwrap();
    backend.goaway();
    backend.resume();
    in_time(call).await.unwrap().unwrap();
    backend.wait_connections(0).await.unwrap();

    client(&backend).await.unary(EchoRequest::new("x")).await.unwrap();
    assert_eq!(backend.connections(), 1, "an earlier GOAWAY is not meant for a new connection");
}

#[tokio::test]
async fn connections_end_at_their_age() {
    let backend = Backend::start("one").await.unwrap();
    let _client = client(&backend).await;
    backend.wait_connections(1).await.unwrap();
    backend.goaway_every(Duration::from_millis(20));
    backend.wait_connections(0).await.unwrap();
    assert_eq!(backend.connections_accepted(), 1);
}

#[tokio::test]
async fn a_bad_name_is_an_error() {
    let error = Backend::start("two\nlines").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_dropped_backend_is_gone() {
    let backend = Backend::start("one").await.unwrap();
    let address = backend.address();
    let mut client = client(&backend).await;
    drop(backend);
    assert!(in_time(client.unary(EchoRequest::new("x"))).await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_black_hole_accepts_and_a_dead_address_refuses() {
    let hole = BlackHole::start().await.unwrap();
    let _stream = tokio::net::TcpStream::connect(hole.address()).await.unwrap();
    hole.wait_connections(1).await.unwrap();
    assert_eq!(hole.connections(), 1);
    let dead = dead_address().unwrap();
    let refused = tokio::net::TcpStream::connect(dead.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_backend_starts_at_an_address_that_is_reserved() -> Result<(), Box<dyn std::error::Error>> {
    let reserved = dead_address()?;
    for name in ["first", "second"] {
        let backend = Backend::start_at(name, reserved.address()).await?;
        assert_eq!(backend.address(), reserved.address());
        backend.kill().await;
    }
    Ok(())
}
