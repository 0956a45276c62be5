//! A backend on h2: it answers, or does not.

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

/// What a backend does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// Takes them, and never answers. PINGs are answered.
    Mute,
    /// Resets them: they were not processed.
    Refuse,
    /// Resets them.
    Fail,
    /// Begins to answer and never goes on.
    Begin,
    /// Answers with an error before it has read anything, and never reads.
    Early,
}

/// A backend. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
    state: Arc<Mutex<State>>,
    trace: Trace,
}

struct State {
    manner: Manner,
    /// How often each RPC came.
    copies: BTreeMap<String, usize>,
}

impl Backend {
    /// Puts a good backend into the network.
    pub(crate) fn start(network: &Network, address: SocketAddr, name: &str) -> Self {
        let state = Arc::new(Mutex::new(State { manner: Manner::Good, copies: BTreeMap::new() }));
        let backend = Self { address, name: name.into(), state, trace: network.trace().clone() };
        network.host(address, backend.server());
        backend
    }

    /// What serves its connections while nothing is wrong with its HTTP/2.
    pub(crate) fn server(&self) -> Serve {
        let backend = self.clone();
        Arc::new(move |io| {
            let backend = backend.clone();
            Box::pin(async move {
                let Ok(mut connection) = h2::server::handshake(io).await else { return };
                let mut calls = JoinSet::new();
                // A client that goes away ends it.
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

    /// How often each RPC came, since [`forget_copies`](Self::forget_copies).
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
            // Until the caller gives up.
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
        // A caller that has gone needs no answer.
        if let Ok(mut stream) = begin(&mut respond) {
            let _ = stream.send_data(framed(&answer), false);
            let _ = stream.send_trailers(trailers(0));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
