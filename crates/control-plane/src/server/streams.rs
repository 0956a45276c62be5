//! Runs ADS streams: reads requests, watches the snapshot, and sends responses as fast as the client takes them.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::plane::Plane;
use super::snapshot::Snapshot;
use super::subscription::{News, Subscription};

/// A variant of the protocol, without IO.
pub(super) trait Protocol: Default + Send + 'static {
    /// Whether it is the incremental one.
    const IS_DELTA: bool;
    type Request: Request;
    type Response: Send + 'static;

    /// Takes a request in; returns the ACK or NACK that it contains.
    fn on_request(&mut self, request: &Self::Request) -> Option<News>;
    /// The next response that brings the client closer to the snapshot.
    fn next_response(&mut self, snapshot: &Snapshot) -> Option<Self::Response>;
    fn subscriptions(&self) -> &BTreeMap<String, Subscription>;
}

/// The common parts of requests.
pub(super) trait Request: Send + 'static {
    fn node(&self) -> Option<&Node>;
    fn type_url(&self) -> &str;
}

impl Request for DiscoveryRequest {
    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }
}

impl Request for DeltaDiscoveryRequest {
    fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    fn type_url(&self) -> &str {
        &self.type_url
    }
}

/// Removes a client when its stream ends, in whatever way.
struct Registered {
    plane: Plane,
    stream: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.plane.close(self.stream);
    }
}

/// Runs a stream until its client ends it. At most one response waits for the client; a snapshot that it did not come to
/// is skipped. Requests are read meanwhile, or both sides could wait for each other for ever.
pub(super) async fn run<P: Protocol>(
    plane: Plane,
    stream: u64,
    mut requests: Streaming<P::Request>,
    outbox: mpsc::Sender<Result<P::Response, Status>>,
) {
    let _registered = Registered { plane: plane.clone(), stream };
    let mut current = plane.current();
    let mut protocol = P::default();
    let mut node = String::new();
    let mut may_have_more = false;
    loop {
        tokio::select! {
            request = requests.message() => {
                // An error of the transport ends the stream for the client too.
                let Ok(Some(request)) = request else { return };
                if let Some(of) = request.node() {
                    node.clone_from(&of.id);
                    plane.update(stream, |client| client.node = Some(of.clone()));
                }
                if let Some(news) = protocol.on_request(&request) {
                    plane.update(stream, |client| client.refresh(protocol.subscriptions()));
                    plane.answered(&node, request.type_url(), news);
                }
                may_have_more = true;
            }
            () = outbox.closed() => return,
            changed = current.changed() => {
                if changed.is_err() {
                    return;
                }
                may_have_more = true;
            }
            permit = outbox.reserve(), if may_have_more => {
                let Ok(permit) = permit else { return };
                let snapshot = current.borrow_and_update().clone();
                match protocol.next_response(&snapshot) {
                    Some(response) => permit.send(Ok(response)),
                    None => may_have_more = false,
                }
            }
        }
        plane.update(stream, |client| client.refresh(protocol.subscriptions()));
    }
}
