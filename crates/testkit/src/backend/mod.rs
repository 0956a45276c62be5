//! gRPC backends with controllable failures.

mod activity;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tonic::Code;
use tonic::service::Routes;

pub use activity::Call;

use crate::echo::{EchoServer, descriptor};
use crate::observed::{Observed, PATIENCE, TimedOut};
use crate::reflection::{ReflectionV1, ReflectionV1Alpha};
use crate::server::{Port, Server};
use activity::{Activity, Controlled};

/// A gRPC server on a loopback port. Dropping it stops it.
///
/// Every response has its name in the metadata, under `hostname`, unless the service sets another one.
#[derive(Debug)]
pub struct Backend {
    name: String,
    activity: Arc<Observed<Activity>>,
    server: Server<Controlled>,
}

/// The echo service, and its description.
fn echo(name: &str) -> Routes {
    Routes::new(EchoServer::new(name))
        .add_service(ReflectionV1::new([descriptor()]))
        .add_service(ReflectionV1Alpha::new([descriptor()]))
}

impl Backend {
    /// Starts a backend with the [echo service](crate::echo) and [server reflection](crate::reflection).
    ///
    /// # Errors
    /// If no port can be bound, or the name is not a valid header value.
    pub async fn start(name: &str) -> io::Result<Self> {
        Self::serve(name, echo(name)).await
    }

    /// Starts a backend with the [echo service](crate::echo) at this address, such as that of a
    /// [`DeadAddress`](crate::DeadAddress) which another process holds.
    ///
    /// # Errors
    /// When the address cannot be bound, or the name cannot be a header's value.
    pub async fn start_at(name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::serve_on(name, echo(name), Port::reserve_at(address)?)
    }

    /// Starts a backend with these services. The controls apply to them too.
    ///
    /// # Errors
    /// If no port can be bound, or the name is not a valid header value.
    pub async fn serve(name: &str, routes: Routes) -> io::Result<Self> {
        Self::serve_on(name, routes, Port::reserve()?)
    }

    fn serve_on(name: &str, routes: Routes, port: Port) -> io::Result<Self> {
        let header = HeaderValue::from_str(name).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("name {name:?}: {error}"))
        })?;
        let activity = Arc::new(Observed::new(Activity::default()));
        let controlled = Controlled { name: header, activity: activity.clone(), routes: routes.prepare() };
        Ok(Self { name: name.to_owned(), activity, server: Server::start(controlled, port)? })
    }

    /// Secures all connections from now on; see [`ServerTls`](crate::tls::ServerTls).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &crate::tls::ServerTls) -> Self {
        self.server.use_tls(tls);
        self
    }

    /// The backend's name in responses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    // -- controls -----------------------------------------------------------

    /// Closes the port and resets every connection.
    pub async fn kill(&self) {
        self.server.stop().await;
    }

    /// Listens again on the same port after [`kill`](Self::kill).
    ///
    /// # Errors
    /// If the port cannot be bound.
    pub async fn restart(&self) -> io::Result<()> {
        self.server.restart()
    }

    /// Stops answering RPCs, until [`resume`](Self::resume).
    pub fn hang(&self) {
        self.activity.update(|a| a.hung = true);
    }

    /// Answers pending and future RPCs.
    pub fn resume(&self) {
        self.activity.update(|a| a.hung = false);
    }

    /// Answers RPCs after this time; zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.activity.update(|a| a.delay = delay);
    }

    /// Fails RPCs with this code, until [`succeed`](Self::succeed).
    pub fn fail_with(&self, code: Code) {
        self.activity.update(|a| a.failure = Some(code));
    }

    /// Ends [`fail_with`](Self::fail_with).
    pub fn succeed(&self) {
        self.activity.update(|a| a.failure = None);
    }

    /// Adds this entry to the trailers of all successful responses.
    ///
    /// # Panics
    /// If name or value are invalid in a header.
    pub fn add_trailer(&self, name: &str, value: &str) {
        let name = http::HeaderName::try_from(name).expect("the name of a header");
        let value = HeaderValue::try_from(value).expect("the value of a header");
        self.activity.update(|a| a.trailers.insert(name, value));
    }

    /// Sends a GOAWAY on every connection; each one closes when its RPCs have ended.
    pub fn goaway(&self) {
        self.server.goaway();
    }

    /// Sends a GOAWAY on every connection that reaches this age, like servers with a maximum connection age.
    pub fn goaway_every(&self, age: Duration) {
        self.server.max_age(Some(age));
    }

    // -- observation --------------------------------------------------------

    /// The number of RPCs received.
    pub fn count(&self) -> u64 {
        self.activity.read(|a| a.count)
    }

    /// The number of RPCs in flight.
    pub fn in_flight(&self) -> usize {
        self.activity.read(|a| a.in_flight)
    }

    /// The maximum number of RPCs in flight so far.
    pub fn peak(&self) -> usize {
        self.activity.read(|a| a.peak)
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.server.connections().read(|c| c.open)
    }

    /// The number of connections accepted so far.
    pub fn connections_accepted(&self) -> usize {
        self.server.connections().read(|c| c.accepted)
    }

    /// The latest RPCs (at most 10,000), oldest first.
    pub fn calls(&self) -> Vec<Arc<Call>> {
        self.activity.read(|a| a.calls.iter().cloned().collect())
    }

    /// Waits until at least this many RPCs were received.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_count(&self, count: u64) -> Result<(), TimedOut> {
        self.wait(&format!("{count} RPCs"), |a| a.count >= count).await
    }

    /// Waits until exactly this many RPCs are in flight.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_in_flight(&self, count: usize) -> Result<(), TimedOut> {
        self.wait(&format!("{count} RPCs in flight"), |a| a.in_flight == count).await
    }

    /// Waits until exactly this many connections are open.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_connections(&self, count: usize) -> Result<(), TimedOut> {
        let what = format!("{count} connections of {}", self.name);
        let reached = |c: &crate::server::Connections| (c.open == count).then_some(());
        self.server.connections().wait(PATIENCE, what, reached, |c| format!("{} open", c.open)).await
    }

    /// Waits until at least this many connections were accepted.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_connections_accepted(&self, count: usize) -> Result<(), TimedOut> {
        let what = format!("{count} connections accepted by {}", self.name);
        let reached = |c: &crate::server::Connections| (c.accepted >= count).then_some(());
        self.server.connections().wait(PATIENCE, what, reached, |c| format!("{} accepted", c.accepted)).await
    }

    /// The latest failed TLS handshakes (at most 100), oldest first.
    #[cfg(feature = "tls")]
    pub fn handshake_errors(&self) -> Vec<String> {
        self.server.connections().read(|c| c.handshake_errors.iter().cloned().collect())
    }

    /// Waits for a failed TLS handshake, past or future. Returns the latest.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    #[cfg(feature = "tls")]
    pub async fn wait_handshake_error(&self) -> Result<String, TimedOut> {
        let what = format!("a failed handshake of {}", self.name);
        let latest = |c: &crate::server::Connections| c.handshake_errors.back().cloned();
        self.server.connections().wait(PATIENCE, what, latest, |c| format!("{} accepted", c.accepted)).await
    }

    async fn wait(&self, what: &str, condition: impl Fn(&Activity) -> bool) -> Result<(), TimedOut> {
        let what = format!("{what} at {}", self.name);
        let seen = |a: &Activity| format!("{} RPCs, {} in flight", a.count, a.in_flight);
        self.activity.wait(PATIENCE, what, |a| condition(a).then_some(()), seen).await
    }
}
