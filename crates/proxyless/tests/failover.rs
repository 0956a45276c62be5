//! Which RPCs fail with the connection to a primary: those that it may have begun to process, and no others.

mod common;

use std::io;
use std::net::SocketAddr;

use common::*;
use proxyless_testkit::Backend;
use proxyless_testkit::resources::priorities;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tonic::Code;

/// The streams that the primary allows.
const STREAMS: u32 = 4;
const CALLERS: usize = 16;

/// The end of the primary.
#[derive(Clone, Copy, Debug)]
enum Death {
    /// The connection is closed.
    Closed,
    /// The connection is reset.
    Reset,
}

/// A gRPC server that begins RPCs, and ends none.
struct Primary {
    address: SocketAddr,
    begun: watch::Sender<usize>,
    task: AbortHandle,
}

impl Primary {
    async fn start(death: Death) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let begun = watch::Sender::new(0);
        let count = begun.clone();
        let serving = async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                if matches!(death, Death::Reset) && socket.set_zero_linger().is_err() {
                    return;
                }
                connections.spawn(serve(socket, count.clone()));
            }
        };
        Ok(Self { address, begun, task: tokio::spawn(serving).abort_handle() })
    }

    /// Ends the connections, and refuses others.
    fn kill(&self) {
        self.task.abort();
    }
}

async fn serve(socket: TcpStream, begun: watch::Sender<usize>) -> Result<(), h2::Error> {
    let mut http2 = h2::server::Builder::new()
        .max_concurrent_streams(STREAMS)
        .handshake::<_, bytes::Bytes>(socket)
        .await?;
    let mut requests = Vec::new();
    while let Some(request) = http2.accept().await {
        requests.push(request?);
        begun.send_modify(|count| *count += 1);
    }
    Ok(())
}

#[tokio::test]
async fn rpcs_that_a_lost_primary_cannot_have_begun_move_to_the_next_priority() -> TestResult {
    for death in [Death::Closed, Death::Reset] {
        let (primary, spare) = (Primary::start(death).await?, Backend::start("spare").await?);
        let plane = mesh(&[]).await;
        plane.set(priorities("cluster", [[primary.address], [spare.address()]]));
        let mut calls = hold(&channel(&plane), CALLERS);
        let begun = usize::try_from(STREAMS)?;
        let mut seen = primary.begun.subscribe();
        let all_streams = seen.wait_for(|&count| count == begun);
        let all_streams = tokio::time::timeout(PATIENCE, all_streams).await.map(drop);
        assert!(all_streams.is_ok(), "{death:?}: only {:?} RPCs began", primary.begun.borrow());
        primary.kill();
        let mut failed = 0;
        for _ in 0..CALLERS {
            match calls.next().await {
                Ok(backend) => assert_eq!(backend, "spare"),
                Err(status) => {
                    assert_eq!(status.code(), Code::Unavailable, "{death:?}: {status:?}");
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, begun, "{death:?}");
    }
    Ok(())
}
