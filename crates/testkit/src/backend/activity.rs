//! A backend's handling of RPCs, and its log of them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower_service::Service;

use crate::observed::Observed;
use crate::server::{Handler, Peer};

/// The maximum number of logged calls.
const LOG_LIMIT: usize = 10_000;

/// An RPC received by a backend.
#[derive(Clone, Debug)]
pub struct Call {
    path: String,
    authority: Option<String>,
    headers: HeaderMap,
    peer: Peer,
}

impl Call {
    /// `/package.Service/Method`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The request's `:authority`.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The request's metadata, as HTTP headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// A metadata value, if it exists and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The client's end of the connection: equal for calls on the same connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer.address
    }

    /// The certificate that the client has presented, in DER. Only servers with TLS that require one have it.
    pub fn client_certificate(&self) -> Option<&[u8]> {
        self.peer.certificate.as_deref()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) hung: bool,
    pub(crate) delay: Duration,
    pub(crate) failure: Option<Code>,
    pub(crate) trailers: HeaderMap,
    pub(crate) in_flight: usize,
    pub(crate) peak: usize,
    pub(crate) count: u64,
    pub(crate) calls: VecDeque<Arc<Call>>,
}

/// Applies the controls of a backend in front of its services.
#[derive(Clone, Debug)]
pub(crate) struct Controlled {
    pub(crate) name: HeaderValue,
    pub(crate) activity: Arc<Observed<Activity>>,
    pub(crate) routes: Routes,
}

impl Handler for Controlled {
    async fn handle(&self, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let in_flight = self.enter(request.uri(), request.headers(), peer);
        self.activity.until(|activity| !activity.hung).await;
        let delay = self.activity.read(|activity| activity.delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(code) = self.activity.read(|activity| activity.failure) {
            return Status::new(code, "the backend was told to fail").into_http();
        }
        let mut response = self.dispatch(request).await;
        response.headers_mut().entry("hostname").or_insert_with(|| self.name.clone());
        let trailers = self.activity.read(|activity| activity.trailers.clone());
        response.map(|inner| Body::new(CountedBody { inner, trailers, _in_flight: in_flight }))
    }
}

impl Controlled {
    async fn dispatch(&self, request: Request<Incoming>) -> Response<Body> {
        let mut routes = self.routes.clone();
        let ready =
            std::future::poll_fn(|cx| Service::<Request<Incoming>>::poll_ready(&mut routes, cx)).await;
        match ready {
            Ok(()) => match routes.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(never) => match never {},
        }
    }

    fn enter(&self, uri: &Uri, headers: &HeaderMap, peer: Peer) -> InFlight {
        let authority = uri.authority().map(ToString::to_string);
        let call = Arc::new(Call { path: uri.path().to_owned(), authority, headers: headers.clone(), peer });
        self.activity.update(|activity| {
            activity.count += 1;
            activity.in_flight += 1;
            activity.peak = activity.peak.max(activity.in_flight);
            if activity.calls.len() == LOG_LIMIT {
                activity.calls.pop_front();
            }
            activity.calls.push_back(call);
        });
        InFlight(self.activity.clone())
    }
}

/// Counts an RPC as in flight until it is dropped.
#[derive(Debug)]
struct InFlight(Arc<Observed<Activity>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.update(|activity| activity.in_flight -= 1);
    }
}

/// A response body whose RPC is in flight until the body is dropped.
struct CountedBody {
    inner: Body,
    /// Additional trailers.
    trailers: HeaderMap,
    _in_flight: InFlight,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|mut frame| {
                if let Some(trailers) = frame.trailers_mut() {
                    trailers.extend(this.trailers.drain());
                }
                frame
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
