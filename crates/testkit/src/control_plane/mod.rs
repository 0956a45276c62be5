//! A scripted xDS management server: tests set its resources, disturb its streams and inspect the clients' requests.

mod load;
mod load_service;
mod load_state;
mod request;
mod resource;
mod service;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
use envoy_types::pb::google::protobuf::Any;
use http::HeaderMap;
use tokio::time::Instant;
use tonic::Status;

pub use load::{Load, LoadReport};
pub use request::Request;
pub use resource::{AGGREGATE, CDS, EDS, LDS, RDS, Resource, Selector, pack};

use crate::observed::{Observed, PATIENCE, TimedOut};
use crate::server::{Port, Server};
use load_service::Lrs;
use load_state::LoadState;
use service::{Ads, Services, StreamHeaders};
use state::{Change, State};

/// An ADS server (state of the world) with load reporting (LRS) on a loopback port. Dropping it stops it.
///
/// A response of listeners or clusters contains all that the stream subscribes to, so leaving one out deletes it; of
/// other types it contains what changed. Each type has one version, which grows with every change; each response has
/// its own nonce. Requests for unknown names are not answered.
#[derive(Debug)]
pub struct ControlPlane {
    state: Arc<Observed<State>>,
    loads: Arc<Observed<LoadState>>,
    headers: StreamHeaders,
    server: Server<Services>,
    patience: Duration,
}

impl ControlPlane {
    /// Starts an empty server on a free port.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        Self::start_on(Port::reserve()?)
    }

    /// Starts an empty server at this address, such as that of a [`DeadAddress`](crate::DeadAddress) which another
    /// process holds.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        Self::start_on(Port::reserve_at(address)?)
    }

    fn start_on(port: Port) -> io::Result<Self> {
        let state = Arc::new(Observed::new(State::default()));
        let loads = Arc::new(Observed::new(LoadState::default()));
        let headers = StreamHeaders::default();
        let services =
            Services { ads: Ads(state.clone()), lrs: Lrs(loads.clone()), headers: Arc::clone(&headers) };
        let server = Server::start(services, port)?;
        Ok(Self { state, loads, headers, server, patience: PATIENCE })
    }

    /// Sets the time limit of the `wait_` functions; 10 seconds by default.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The method and the request headers of every stream so far, for tests of credentials.
    pub fn stream_headers(&self) -> Vec<(String, HeaderMap)> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Secures all connections from now on; see [`ServerTls`](crate::tls::ServerTls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &crate::tls::ServerTls) -> Self {
        self.server.use_tls(tls);
        self
    }

    /// A bootstrap configuration for clients of this server without TLS.
    pub fn bootstrap_json(&self) -> String {
        self.bootstrap(r#"{ "type": "insecure" }"#, "")
    }

    /// A bootstrap configuration for clients with the certificates of a folder: they are those of a certificate provider
    /// instance with this name. If the server [has TLS](Self::with_tls), they also secure the connections to it. Files that
    /// the folder does not have are left out; the others are read every second.
    #[cfg(feature = "tls")]
    pub fn bootstrap_json_with(&self, instance: &str, folder: &crate::tls::CertificateFolder) -> String {
        let files = folder.config_json();
        let creds = match self.server.connections().read(crate::server::Connections::has_tls) {
            true => serde_json::json!({ "type": "tls", "config": folder.creds_json() }),
            false => serde_json::json!({ "type": "insecure" }),
        };
        let provider = serde_json::json!({ "plugin_name": "file_watcher", "config": files });
        let name = serde_json::json!(instance);
        let more = format!(",\n  \"certificate_providers\": {{ {name}: {provider} }}");
        self.bootstrap(&creds.to_string(), &more)
    }

    fn bootstrap(&self, creds: &str, more: &str) -> String {
        format!(
            r#"{{
  "xds_servers": [
    {{
      "server_uri": "{}",
      "channel_creds": [{creds}],
      "server_features": ["xds_v3"]
    }}
  ],
  "node": {{
    "id": "testkit-node",
    "cluster": "testkit",
    "locality": {{ "region": "region", "zone": "zone", "sub_zone": "sub-zone" }}
  }}{more}
}}"#,
            self.address()
        )
    }

    // -- resources ----------------------------------------------------------

    /// Adds or replaces a resource.
    pub fn set(&self, resource: impl Into<Resource>) {
        self.set_all([resource.into()]);
    }

    /// Adds or replaces resources at once: one new version per type, and at most one response per type and stream.
    pub fn set_all(&self, resources: impl IntoIterator<Item = Resource>) {
        let changes = resources.into_iter().map(Change::Set).collect();
        self.state.update(|s| s.change(changes));
    }

    /// Removes a resource. Clients notice its absence from the next response, for types where that means deletion.
    pub fn remove(&self, type_url: &str, name: &str) {
        self.change(|batch| batch.remove(type_url, name));
    }

    /// Applies several additions and removals at once.
    ///
    /// ```
    /// # use proxyless_testkit::{CDS, ControlPlane, resources};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let control_plane = ControlPlane::start().await?;
    /// control_plane.change(|batch| {
    ///     batch.set(resources::eds_cluster("new"));
    ///     batch.remove(CDS, "old");
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn change(&self, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch { changes: Vec::new() };
        fill(&mut batch);
        self.state.update(|s| s.change(batch.changes));
    }

    /// Replaces a resource by one that cannot be decoded.
    pub fn corrupt(&self, type_url: &str, name: &str) {
        self.set(Resource::garbage(type_url, name));
    }

    /// The current version of a type.
    pub fn version(&self, type_url: &str) -> String {
        self.state.read(|s| s.version(type_url))
    }

    /// Hides changes until [`release`](Self::release): a type gets no responses, a single resource keeps its current
    /// value (or stays unknown).
    pub fn withhold(&self, selector: impl Into<Selector>) {
        self.state.update(|s| s.withhold(selector.into()));
    }

    /// Ends [`withhold`](Self::withhold) and sends the hidden changes.
    pub fn release(&self, selector: impl Into<Selector>) {
        self.state.update(|s| s.release(selector.into()));
    }

    // -- streams ------------------------------------------------------------

    /// Sends these resources on every open stream, whatever it subscribes to. Returns the nonces.
    pub fn send(&self, type_url: &str, resources: &[Any]) -> Vec<String> {
        self.state.update(|s| s.send(type_url, resources))
    }

    /// Sends a response unchanged on every open stream.
    pub fn send_response(&self, response: &DiscoveryResponse) {
        self.state.update(|s| s.send_response(response));
    }

    /// Sends arbitrary bytes on every open stream.
    pub fn send_bytes(&self, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        self.state.update(|s| s.send_outgoing(&Ok(Some(bytes))));
    }

    /// Ends every open stream with status OK.
    pub fn close_streams(&self) {
        self.state.update(|s| s.send_outgoing(&Ok(None)));
    }

    /// Ends every open stream with this status.
    pub fn fail_streams(&self, status: Status) {
        self.state.update(|s| s.send_outgoing(&Err(status)));
    }

    /// Fails new streams with this status; open ones continue.
    pub fn refuse_streams(&self, status: Status) {
        self.state.update(|s| s.refusal = Some(status));
    }

    /// Ends [`refuse_streams`](Self::refuse_streams).
    pub fn accept_streams(&self) {
        self.state.update(|s| s.refusal = None);
    }

    /// Sends a GOAWAY on every connection.
    pub fn goaway(&self) {
        self.server.goaway();
    }

    /// Closes the port and resets every connection. Resources and log are kept.
    pub async fn stop(&self) {
        self.server.stop().await;
    }

    /// Listens again on the same port after [`stop`](Self::stop).
    ///
    /// # Errors
    /// If the port cannot be bound.
    pub async fn restart(&self) -> io::Result<()> {
        self.server.restart()
    }

    // -- observation --------------------------------------------------------

    /// The number of open streams.
    pub fn open_streams(&self) -> usize {
        self.state.read(State::open_streams)
    }

    /// The number of streams opened so far, including refused ones.
    pub fn streams_opened(&self) -> u64 {
        self.state.read(|s| s.streams_opened)
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.server.connections().read(|c| c.open)
    }

    /// The names of this type that open streams subscribe to.
    pub fn subscriptions(&self, type_url: &str) -> BTreeSet<String> {
        self.state.read(|s| s.subscriptions(type_url))
    }

    /// All requests so far, oldest first.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.state.read(|s| s.requests.clone())
    }

    /// Waits for a matching request, past or future.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn wait_for_request(
        &self,
        matches: impl FnMut(&Request) -> bool,
    ) -> Result<Arc<Request>, TimedOut> {
        self.wait_for_request_after(0, matches).await
    }

    /// Like [`wait_for_request`](Self::wait_for_request), but ignores the first `skip` requests of the log.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn wait_for_request_after(
        &self,
        skip: usize,
        mut matches: impl FnMut(&Request) -> bool,
    ) -> Result<Arc<Request>, TimedOut> {
        let deadline = Instant::now() + self.patience;
        let mut next = skip;
        loop {
            // `matches` is the caller's code, so it runs on a copy, outside of the lock.
            let fresh = |s: &State| {
                let fresh: Vec<Arc<Request>> = s.requests.iter().skip(next).cloned().collect();
                (!fresh.is_empty()).then_some(fresh)
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let fresh = self.state.wait(left, "a matching request", fresh, describe).await;
            let fresh = fresh.map_err(|error| error.after(self.patience))?;
            next += fresh.len();
            if let Some(found) = fresh.into_iter().find(|request| matches(request)) {
                return Ok(found);
            }
        }
    }

    /// Waits until the latest response of this type is accepted on every stream that received one.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_ack(&self, type_url: &str) -> Result<Arc<Request>, TimedOut> {
        self.wait(&format!("an ACK of {type_url}"), |s| s.ack(type_url)).await
    }

    /// Waits until the latest response of this type is rejected on some stream.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_nack(&self, type_url: &str) -> Result<Arc<Request>, TimedOut> {
        self.wait(&format!("a NACK of {type_url}"), |s| s.nack(type_url)).await
    }

    /// Waits until exactly these names of a type are subscribed to.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_subscriptions(&self, type_url: &str, names: &[&str]) -> Result<(), TimedOut> {
        let wanted: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let what = format!("subscriptions to {wanted:?} of {type_url}");
        self.wait(&what, |s| (s.subscriptions(type_url) == wanted).then_some(())).await
    }

    /// Waits until this many streams are open.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_open_streams(&self, count: usize) -> Result<(), TimedOut> {
        self.wait(&format!("{count} open streams"), |s| (s.open_streams() == count).then_some(())).await
    }

    /// Waits until at least this many streams were opened, including refused ones.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_streams_opened(&self, count: u64) -> Result<(), TimedOut> {
        self.wait(&format!("{count} streams"), |s| (s.streams_opened >= count).then_some(())).await
    }

    /// Waits until exactly this many connections are open.
    ///
    /// # Errors
    /// If that does not happen in time.
    pub async fn wait_connections(&self, count: usize) -> Result<(), TimedOut> {
        let reached = |c: &crate::server::Connections| (c.open == count).then_some(());
        let what = format!("{count} connections");
        self.server.connections().wait(self.patience, what, reached, |c| format!("{} open", c.open)).await
    }

    async fn wait<R>(&self, what: &str, find: impl FnMut(&State) -> Option<R>) -> Result<R, TimedOut> {
        self.state.wait(self.patience, what, find, describe).await
    }
}

/// Changes applied at once; see [`ControlPlane::change`].
#[derive(Debug)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// Adds or replaces a resource.
    pub fn set(&mut self, resource: impl Into<Resource>) {
        self.changes.push(Change::Set(resource.into()));
    }

    /// Removes a resource.
    pub fn remove(&mut self, type_url: &str, name: &str) {
        self.changes.push(Change::Remove(type_url.into(), name.into()));
    }
}

/// The state in the message of a failed wait.
fn describe(state: &State) -> String {
    let last: Vec<String> = state
        .requests
        .iter()
        .rev()
        .take(5)
        .map(|r| {
            let short = r.type_url().rsplit('.').next().unwrap_or_default();
            let error = r.error().map_or(String::new(), |e| format!(" error={:?}", e.message));
            format!("{short} {:?} version={:?} nonce={:?}{error}", r.names(), r.version(), r.nonce())
        })
        .collect();
    format!(
        "{} requests on {} streams ({} open), the last ones (newest first): [{}]",
        state.requests.len(),
        state.streams_opened,
        state.open_streams(),
        last.join("; ")
    )
}
