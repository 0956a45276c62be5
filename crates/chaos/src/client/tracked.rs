//! A channel that records the backend to which each RPC was last sent, even if the RPC failed.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use proxyless::{PeerAddress, XdsBody, XdsChannel};
use tower_service::Service;

/// A request extension that receives the port.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer(Arc<AtomicU16>);

impl Peer {
    /// The port of the backend, if one was picked.
    pub(super) fn port(&self) -> Option<u16> {
        Some(self.0.load(Ordering::Acquire)).filter(|port| *port != 0)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tracked(pub(super) XdsChannel);

impl Service<Request<tonic::body::Body>> for Tracked {
    type Response = Response<XdsBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        let answer = self.0.call(request);
        Box::pin(async move {
            let response = answer.await?;
            if let (Some(peer), Some(address)) = (peer, response.extensions().get::<PeerAddress>()) {
                peer.0.store(address.address().port(), Ordering::Release);
            }
            Ok(response)
        })
    }
}
