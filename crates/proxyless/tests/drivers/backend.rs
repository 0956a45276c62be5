//! A backend on h2 with several ways not to answer.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use proxyless_testkit::echo::EchoResponse;
use tokio::task::JoinSet;

use crate::grpc::{Messages, begin, framed, trailers};
use crate::network::{Network, Serve};
use crate::trace::Trace;

/// The header that names an RPC.
pub(crate) const RPC_ID: &str = "x-rpc";

const PERMISSION_DENIED: u16 = 7;

/// The behaviour of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// Accepts requests and never answers. PINGs are answered.
    Mute,
    /// Resets requests as not processed.
    Refuse,
    /// Resets requests.
    Fail,
    /// Begins a response and never continues.
    Begin,
    /// Answers with an error before reading anything, and never reads.
    Early,
}

/// A backend. Clones share it.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
    state: Arc<Mutex<State>>,
    trace: Trace,
}

struct State {
    manner: Manner,
    /// The number of copies of each RPC.
    copies: BTreeMap<String, usize>,
}

impl Backend {
    /// Adds a healthy backend to the network.
    pub(crate) fn start(network: &Network, address: SocketAddr, name: &str) -> Self {
        let state = Arc::new(Mutex::new(State { manner: Manner::Good, copies: BTreeMap::new() }));
        let backend = Self { address, name: name.into(), state, trace: network.trace().clone() };
        network.host(address, backend.server());
        backend
    }

    /// The service of its connections while its HTTP/2 is correct.
    pub(crate) fn server(&self) -> Serve {
        let backend = self.clone();
        Arc::new(move |io| {
            let backend = backend.clone();
            Box::pin(async move {
                let Ok(mut connection) = h2::server::handshake(io).await else { return };
                let mut calls = JoinSet::new();
                // Ends when the client closes the connection.
                while let Some(Ok((request, respond))) = connection.accept().await {
                    calls.spawn(backend.clone().answer(request, respond));
                    while calls.try_join_next().is_some() {}
                }
            })
        })
    }

    pub(crate) fn set_manner(&self, manner: Manner) {
        self.lock().manner = manner;
    }

    /// The number of copies of each RPC since [`forget_copies`](Self::forget_copies).
    pub(crate) fn copies(&self) -> BTreeMap<String, usize> {
        self.lock().copies.clone()
    }

    pub(crate) fn forget_copies(&self) {
        self.lock().copies.clear();
    }

    async fn answer(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let id = request.headers().get(RPC_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        self.trace.note(&format!("{} {id}", self.name));
        let manner = {
            let mut state = self.lock();
            *state.copies.entry(id).or_default() += 1;
            state.manner
        };
        match manner {
            Manner::Good => {}
            // Until the caller cancels.
            Manner::Mute => return drop(poll_fn(|cx| respond.poll_reset(cx)).await),
            Manner::Refuse => return respond.send_reset(h2::Reason::REFUSED_STREAM),
            Manner::Fail => return respond.send_reset(h2::Reason::INTERNAL_ERROR),
            Manner::Begin => {
                let Ok(mut begun) = begin(&mut respond) else { return };
                return drop(poll_fn(|cx| begun.poll_reset(cx)).await);
            }
            Manner::Early => {
                let Ok(mut begun) = begin(&mut respond) else { return };
                let _ = begun.send_trailers(trailers(PERMISSION_DENIED));
                let _unread = request;
                return drop(poll_fn(|cx| begun.poll_reset(cx)).await);
            }
        }
        let mut messages = Messages::new(request.into_body());
        while messages.next().await.is_some() {}
        let answer = EchoResponse { message: String::new(), backend: self.name.clone() };
        // The caller may be gone.
        if let Ok(mut stream) = begin(&mut respond) {
            let _ = stream.send_data(framed(&answer), false);
            let _ = stream.send_trailers(trailers(0));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
