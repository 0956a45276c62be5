//! More connections to a backend whose MAX_CONCURRENT_STREAMS are used up (gRFC A105), over real sockets.

mod common;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use common::*;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, HeaderValue, Response};
use proxyless::inspect::{SocketView, SubchannelView};
use proxyless::{ChannelState, Gates, XdsChannel};
use proxyless_testkit::ControlPlane;
use proxyless_testkit::resources::*;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

/// The streams that the server allows on each connection.
const STREAMS: u32 = 2;

/// A gRPC server with few streams per connection, whose RPCs end when the test allows it.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    /// The RPCs in progress on each connection, in order of arrival.
    running: watch::Sender<Vec<usize>>,
    /// One permit for each RPC that may end.
    finish: Semaphore,
    /// Whether further connections are accepted and closed at once.
    refuses: watch::Sender<bool>,
    /// The number of connections that it closed at once.
    refused: watch::Sender<usize>,
    /// Makes the first connection send GOAWAY.
    go_away: Notify,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            running: watch::Sender::default(),
            finish: Semaphore::new(0),
            refuses: watch::Sender::new(false),
            refused: watch::Sender::default(),
            go_away: Notify::new(),
        });
        let state = Arc::clone(&shared);
        let accepting = async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                if *state.refuses.borrow() {
                    drop(socket);
                    state.refused.send_modify(|count| *count += 1);
                    continue;
                }
                let mut number = 0;
                state.running.send_modify(|running| {
                    number = running.len();
                    running.push(0);
                });
                connections.spawn(Arc::clone(&state).serve(socket, number));
            }
        };
        Ok(Self { address, shared, task: tokio::spawn(accepting).abort_handle() })
    }

    /// Waits until so many RPCs are in progress on the connections so far.
    async fn runs(&self, expected: &[usize]) {
        let mut running = self.shared.running.subscribe();
        let reached = running.wait_for(|running| running == expected);
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("not {expected:?}: {:?}", self.shared.running.borrow());
        }
    }

    fn connections(&self) -> usize {
        self.shared.running.borrow().len()
    }

    /// Lets so many RPCs end.
    fn finish(&self, count: usize) {
        self.shared.finish.add_permits(count);
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, socket: TcpStream, number: usize) {
        let handshake = Builder::new().max_concurrent_streams(STREAMS).handshake(socket).await;
        let Ok(mut connection) = handshake else { return };
        let mut requests = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = self.go_away.notified(), if number == 0 => {
                    connection.graceful_shutdown();
                    continue;
                }
                accepted = connection.accept() => accepted,
            };
            let Some(Ok((_, respond))) = accepted else { return };
            self.running.send_modify(|running| running[number] += 1);
            let shared = Arc::clone(&self);
            requests.spawn(async move {
                if let Ok(permit) = shared.finish.acquire().await {
                    permit.forget();
                }
                // First: the client may send the next request as soon as it has the answer.
                shared.running.send_modify(|running| running[number] -= 1);
                drop(answer(respond));
            });
        }
    }
}

/// A successful response with one empty message.
fn answer(mut respond: SendResponse<bytes::Bytes>) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut body = respond.send_response(response, false)?;
    body.send_data(bytes::Bytes::from_static(&[0; 5]), false)?;
    body.send_trailers(HeaderMap::from_iter([(
        "grpc-status".parse().expect("a name"),
        HeaderValue::from_static("0"),
    )]))
}

/// A mesh whose cluster allows so many connections to the server, and a channel that may make them.
async fn scaled(server: &Server, max_connections: u32) -> (ControlPlane, XdsChannel) {
    let plane = mesh_of(&[server.address]).await;
    plane.set(eds_cluster("cluster").max_connections_per_host(max_connections));
    let channel = builder(&plane).gates(open()).build().expect("a valid target");
    (plane, channel)
}

fn open() -> Gates {
    let mut gates = Gates::default();
    gates.connection_scaling = true;
    gates
}

async fn subchannel(channel: &XdsChannel) -> SubchannelView {
    let report = channel.describe().await.expect("a report");
    let [subchannel] = &report.subchannels[..] else { panic!("{report:?}") };
    subchannel.clone()
}

async fn finish_all(held: &mut Held, server: &Server, count: usize) -> TestResult {
    server.finish(count);
    for _ in 0..count {
        held.next().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a105_07_connections_are_added_up_to_the_limit_and_then_rpcs_wait() -> TestResult {
    let server = Server::start().await?;
    let (_plane, channel) = scaled(&server, 3).await;
    let mut first = hold(&channel, 5);
    // A105-20: the oldest connections are full, the newest has the rest.
    server.runs(&[2, 2, 1]).await;
    let mut more = hold(&channel, 4);
    server.runs(&[2, 2, 2]).await;

    let view = subchannel(&channel).await;
    let sockets: Vec<_> = view
        .sockets
        .iter()
        .map(|SocketView { calls, max_concurrent_streams, .. }| (calls.in_flight(), *max_concurrent_streams))
        .collect();
    assert_eq!(sockets, [(2, Some(STREAMS)); 3], "A105-22: channelz shows the connections");
    assert_eq!((view.max_connections, view.calls.in_flight()), (3, 6));
    let tree = channel.tree().await.ok_or("no tree")?.to_string();
    assert!(tree.contains("connections=3") && tree.contains("maxConnectionsPerSubchannel=3"), "{tree}");

    // Each RPC that ends makes room for one that waits.
    finish_all(&mut first, &server, 5).await?;
    finish_all(&mut more, &server, 4).await?;
    server.runs(&[0, 0, 0]).await;
    let view = subchannel(&channel).await;
    let ended: Vec<_> = view.sockets.iter().map(|socket| socket.calls.succeeded).collect();
    assert_eq!((ended.iter().sum::<u64>(), view.calls.succeeded), (9, 9), "{ended:?}");
    assert!(ended.iter().all(|&count| count >= 1), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a105_03_without_the_setting_rpcs_wait_for_the_one_connection() -> TestResult {
    let server = Server::start().await?;
    let plane = mesh_of(&[server.address]).await;
    let channel = builder(&plane).gates(open()).build()?;
    let mut held = hold(&channel, 5);
    server.runs(&[2]).await;
    finish_all(&mut held, &server, 5).await?;
    assert_eq!((server.connections(), subchannel(&channel).await.sockets.len()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn a105_23_with_a_closed_gate_the_setting_has_no_effect() -> TestResult {
    let server = Server::start().await?;
    let plane = mesh_of(&[server.address]).await;
    plane.set(eds_cluster("cluster").max_connections_per_host(3));
    let channel = builder(&plane).gates(Gates::default()).build()?;
    let mut held = hold(&channel, 5);
    server.runs(&[2]).await;
    finish_all(&mut held, &server, 5).await?;
    assert_eq!(server.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn a105_04_the_builder_caps_the_setting() -> TestResult {
    let server = Server::start().await?;
    let plane = mesh_of(&[server.address]).await;
    plane.set(eds_cluster("cluster").max_connections_per_host(1_000));
    let channel = builder(&plane).gates(open()).connections_per_subchannel_cap(2).build()?;
    let mut held = hold(&channel, 7);
    server.runs(&[2, 2]).await;
    assert_eq!(subchannel(&channel).await.max_connections, 2);
    finish_all(&mut held, &server, 7).await?;
    assert_eq!(server.connections(), 2);
    Ok(())
}

#[tokio::test]
async fn a105_08_a_raised_setting_serves_rpcs_that_wait_already() -> TestResult {
    let server = Server::start().await?;
    let plane = mesh_of(&[server.address]).await;
    let channel = builder(&plane).gates(open()).build()?;
    let mut held = hold(&channel, 4);
    server.runs(&[2]).await;
    plane.set(eds_cluster("cluster").max_connections_per_host(2));
    // The first connection stays (A105-02).
    server.runs(&[2, 2]).await;
    // A lowered setting closes nothing.
    plane.set(eds_cluster("cluster"));
    let lowered = async { while subchannel(&channel).await.max_connections != 1 {} };
    tokio::time::timeout(PATIENCE, lowered).await?;
    assert_eq!(subchannel(&channel).await.sockets.len(), 2);
    finish_all(&mut held, &server, 4).await?;
    assert_eq!(server.connections(), 2);
    Ok(())
}

#[tokio::test]
async fn a105_14_a_goaway_on_one_of_several_connections_fails_nothing() -> TestResult {
    let server = Server::start().await?;
    let (_plane, channel) = scaled(&server, 2).await;
    let mut held = hold(&channel, 5);
    server.runs(&[2, 2]).await;
    server.shared.go_away.notify_one();
    // The RPC that waits gets a third connection: the first is no longer one of the subchannel.
    server.runs(&[2, 2, 1]).await;
    let view = subchannel(&channel).await;
    assert_eq!(view.sockets.len(), 2);
    assert_eq!(channel.state(), ChannelState::Ready);
    finish_all(&mut held, &server, 5).await?;
    ask_nothing_of_the_first(&channel, &server).await
}

/// RPCs go to the connections that are left.
async fn ask_nothing_of_the_first(channel: &XdsChannel, server: &Server) -> TestResult {
    let mut held = hold(channel, 4);
    server.runs(&[0, 2, 2]).await;
    finish_all(&mut held, server, 4).await
}

#[tokio::test]
async fn a105_11_a_server_that_refuses_further_connections_still_serves() -> TestResult {
    let server = Server::start().await?;
    let (_plane, channel) = scaled(&server, 3).await;
    let mut held = hold(&channel, 2);
    server.runs(&[2]).await;
    server.shared.refuses.send_replace(true);
    let mut more = hold(&channel, 3);
    let mut refused = server.shared.refused.subscribe();
    tokio::time::timeout(PATIENCE, refused.wait_for(|count| *count > 0)).await??;
    assert_eq!(channel.state(), ChannelState::Ready);
    // The RPCs that wait get the streams of the first connection.
    finish_all(&mut held, &server, 2).await?;
    finish_all(&mut more, &server, 3).await?;
    assert_eq!(server.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn a105_01_a_limit_of_zero_is_rejected_and_rpcs_say_so() -> TestResult {
    let server = Server::start().await?;
    let (_plane, channel) = scaled(&server, 0).await;
    let error = ask(&channel).await.expect_err("the Cluster is invalid");
    let expected = "circuit_breakers.per_host_thresholds[0].max_connections: must not be 0";
    assert!(error.message().contains(expected), "{error:?}");
    Ok(())
}
