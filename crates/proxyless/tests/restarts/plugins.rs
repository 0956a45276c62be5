//! Code of the user or of a connection that panics: resolvers, byte streams, request bodies, callers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use proxyless::connect::{Address, BoxedIo, Connecting, Connector};
use proxyless::dns::{DnsAnswer, Resolve, Resolving};
use proxyless_mesh::policies::cluster_impl::CircuitRegistry;
use proxyless_testkit::Backend;
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status};

use crate::common::*;
use crate::{builder_of, patient, plane_of, trap, until_report};

/// Panics in the resolver, before and after it has returned its future.
struct Names {
    asked: AtomicUsize,
    backend: std::net::SocketAddr,
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> Resolving<'a> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked != 0, "no names today");
        Box::pin(async move {
            assert!(asked != 1, "nor tomorrow");
            Ok(DnsAnswer { addresses: vec![self.backend], ttl: None })
        })
    }
}

#[tokio::test]
async fn a_resolver_that_panics_is_a_failed_query() -> TestResult {
    const NAME: &str = "names.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[]).await;
    plane.set(logical_dns_cluster(NAME, "db.test", 443));
    let names = Names { asked: AtomicUsize::new(0), backend: backend.address() };
    let channel = builder_of(&plane, NAME).dns_resolver(names).build()?;
    // Long before the deadline of queries.
    let failed = tokio::time::timeout(Duration::from_secs(5), ask(&channel)).await?.unwrap_err();
    assert!(failed.message().contains("the resolver panicked: no names today"), "{failed:?}");
    channel.reset_connect_backoff();
    until_failure(&channel, "the resolver panicked: nor tomorrow").await;
    channel.reset_connect_backoff();
    let answer = EchoClient::new(channel.clone()).unary(patient("hello")).await?;
    assert_eq!(answer.into_inner().backend, "a");
    assert_eq!(until_report(&channel, |_| true).await.restarts, 0);
    Ok(())
}

/// Opens byte streams that panic while this is set.
#[derive(Clone, Default)]
struct Fuse(Arc<AtomicBool>);

impl Fuse {
    fn check(&self, what: &str) {
        assert!(!self.0.load(Ordering::Relaxed), "{what} blew the fuse");
    }
}

impl Connector for Fuse {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            self.check("connecting");
            let Address::Tcp(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
            Ok(BoxedIo::new(Fused { io: TcpStream::connect(address).await?, fuse: self.clone() }))
        })
    }
}

struct Fused {
    io: TcpStream,
    fuse: Fuse,
}

impl AsyncRead for Fused {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Fused {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.fuse.check("writing");
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fuse.check("writing");
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// h2 writes under a lock that all calls of the connection take: a panic must not poison it for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_stream_that_panics_is_a_lost_connection() -> TestResult {
    const NAME: &str = "fuse.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let fuse = Fuse::default();
    let channel = builder_of(&plane, NAME).connector(fuse.clone()).build()?;
    ask(&channel).await?;
    backend.hang();
    let mut held = hold(&channel, 3);
    backend.wait_in_flight(3).await?;
    fuse.0.store(true, Ordering::Relaxed);
    // Its request is written next.
    until_failure(&channel, "the byte stream panicked: writing blew the fuse").await;
    until_failure(&channel, "the connector panicked: connecting blew the fuse").await;
    for _ in 0..3 {
        let lost = held.next().await.unwrap_err();
        assert_eq!(lost.code(), Code::Unavailable);
        assert!(lost.message().contains("the byte stream panicked: writing blew the fuse"), "{lost:?}");
    }
    fuse.0.store(false, Ordering::Relaxed);
    backend.resume();
    channel.reset_connect_backoff();
    let answer = EchoClient::new(channel.clone()).unary(patient("hello")).await?;
    assert_eq!(answer.into_inner().backend, "a");
    assert_eq!(until_report(&channel, |_| true).await.restarts, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_body_that_panics_ends_its_own_call_only() -> TestResult {
    const NAME: &str = "body.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let channel = builder_of(&plane, NAME).build()?;
    let chat = async |requests| {
        let requests = UnboundedReceiverStream::new(requests).map(|text: &str| {
            assert!(text != "panic", "not a request");
            EchoRequest::new(text)
        });
        let mut client = EchoClient::new(channel.clone());
        Ok::<_, Status>(client.chat(requests).await?.into_inner())
    };
    let (bad, requests) = tokio::sync::mpsc::unbounded_channel();
    bad.send("0")?;
    let mut ends = chat(requests).await?;
    let (good, requests) = tokio::sync::mpsc::unbounded_channel();
    good.send("0")?;
    let mut goes_on = chat(requests).await?;
    assert!(ends.message().await?.is_some() && goes_on.message().await?.is_some());
    // The task that uploads the rest of the stream polls it.
    bad.send("panic")?;
    let failed = tokio::time::timeout(PATIENCE, ends.message()).await?.unwrap_err();
    assert_eq!(failed.code(), Code::Internal, "{failed:?}");
    good.send("1")?;
    assert_eq!(goes_on.message().await?.ok_or("the stream ended")?.message, "1");
    drop((good, goes_on, ends));
    ask(&channel).await?;
    assert_eq!((CircuitRegistry::global().in_flight(NAME, None), backend.connections_accepted()), (0, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_task_panics_is_made_again() -> TestResult {
    const NAME: &str = "task.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    // After the handshake and before the channel is notified; then when it is lost.
    let address = format!("address=ipv4:{} ", backend.address());
    trap(&["=connected", address.trim_end()], 1);
    trap(&["=connection lost", address.trim_end()], 1);
    let channel = builder_of(&plane, NAME).build()?;
    let failed = ask(&channel).await.unwrap_err();
    assert!(failed.message().contains("the task of the connection ended unexpectedly"), "{failed:?}");
    channel.reset_connect_backoff();
    until_only(&channel, &["a"]).await;
    backend.goaway();
    until_only(&channel, &["a"]).await;
    backend.wait_connections_accepted(3).await?;
    assert_eq!(until_report(&channel, |_| true).await.restarts, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_is_reported_after_the_xds_client_panicked_in_its_load_reports() -> TestResult {
    const NAME: &str = "reports.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    trap(&["the LRS stream is up", &plane.address().to_string()], 2);
    plane.set(eds_cluster(NAME).report_load());
    let channel = builder_of(&plane, NAME).build()?;
    for _ in 0..5 {
        ask(&channel).await?;
    }
    let load = plane.wait_load(NAME, |load| load.succeeded == 5).await?;
    assert_eq!((load.issued, load.failed), (5, 0));
    let report = until_report(&channel, |_| true).await;
    let panics =
        report.events.iter().filter(|event| event.description.contains("the xDS client panicked")).count();
    assert_eq!((panics, report.restarts), (2, 0));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_panics_leaves_nothing_in_flight() -> TestResult {
    const NAME: &str = "caller.example";
    let backend = Backend::start("a").await?;
    let plane = plane_of(NAME, &[&backend]).await;
    let channel = builder_of(&plane, NAME).build()?;
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    sender.send(EchoRequest::new("0"))?;
    let mut client = EchoClient::new(channel.clone());
    let caller = tokio::spawn(async move {
        let stream = client.chat(UnboundedReceiverStream::new(requests)).await.unwrap().into_inner();
        panic!("a bug of the program, with {stream:?}");
    });
    assert!(caller.await.is_err_and(|error| error.is_panic()));
    sender.closed().await;
    backend.wait_in_flight(0).await?;
    assert_eq!(CircuitRegistry::global().in_flight(NAME, None), 0);
    ask(&channel).await?;
    assert_eq!(backend.connections_accepted(), 1);
    Ok(())
}
