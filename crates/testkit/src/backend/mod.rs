//! gRPC backends that tests can hurt in several ways.

mod activity;
#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http::HeaderValue;
use tonic::{Code, service::Routes};

pub use activity::Call;

use crate::{
    echo::EchoServer,
    observed::{Observed, PATIENCE, TimedOut},
    server::{Port, Server},
};
use activity::{Activity, Controlled};

/// A gRPC server on a port of the loopback interface. It ends when dropped.
///
/// Its name is in the metadata of every response, under `hostname`, unless the service puts another one there.
#[derive(Debug)]
pub struct Backend {
    name: String,
    activity: Arc<Observed<Activity>>,
    server: Server<Controlled>,
}

impl Backend {
    /// Starts a backend with the [echo service](crate::echo).
    ///
    /// # Errors
    /// When no port can be bound, or the name cannot be a header's value.
    pub async fn start(name: &str) -> io::Result<Self> {
        Self::serve(name, Routes::new(EchoServer::new(name))).await
    }

    /// Starts a backend with the [echo service](crate::echo) at this address, such as that of a
    /// [`DeadAddress`](crate::DeadAddress) which another process holds.
    ///
    /// # Errors
    /// When the address cannot be bound, or the name cannot be a header's value.
    pub async fn start_at(name: &str, address: SocketAddr) -> io::Result<Self> {
        Self::serve_on(name, Routes::new(EchoServer::new(name)), Port::reserve_at(address)?)
    }

    /// Starts a backend with services of your own. The controls work for them too.
    ///
    /// # Errors
    /// When no port can be bound, or the name cannot be a header's value.
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

    /// The name that it answers with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
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
    /// When the port cannot be bound.
    pub async fn restart(&self) -> io::Result<()> {
        self.server.restart()
    }

    /// From now on RPCs get no answer, until [`resume`](Self::resume).
    pub fn hang(&self) {
        self.activity.update(|a| a.hung = true);
    }

    /// Answers the RPCs that hang, and those to come.
    pub fn resume(&self) {
        self.activity.update(|a| a.hung = false);
    }

    /// From now on RPCs fail with this code, until [`succeed`](Self::succeed).
    pub fn fail_with(&self, code: Code) {
        self.activity.update(|a| a.failure = Some(code));
    }

    /// Ends [`fail_with`](Self::fail_with).
    pub fn succeed(&self) {
        self.activity.update(|a| a.failure = None);
    }

    /// From now on the trailers of every response that succeeds have this entry too.
    ///
    /// # Panics
    /// If name or value cannot be in a header.
    pub fn add_trailer(&self, name: &str, value: &str) {
        let name = http::HeaderName::try_from(name).expect("the name of a header");
        let value = HeaderValue::try_from(value).expect("the value of a header");
        self.activity.update(|a| a.trailers.insert(name, value));
    }

    /// Sends a GOAWAY on every connection; each ends when its RPCs have.
    pub fn goaway(&self) {
        self.server.goaway();
    }

    /// Sends a GOAWAY on every connection that reaches this age, as servers with a maximum connection age do.
    pub fn goaway_every(&self, age: Duration) {
        self.server.max_age(Some(age));
    }

    // -- observation --------------------------------------------------------

    /// How many RPCs have reached it.
    pub fn count(&self) -> u64 {
        self.activity.read(|a| a.count)
    }

    /// How many RPCs it has not finished yet.
    pub fn in_flight(&self) -> usize {
        self.activity.read(|a| a.in_flight)
    }

    /// The most RPCs that were ever in flight at once.
    pub fn peak(&self) -> usize {
        self.activity.read(|a| a.peak)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.server.connections().read(|c| c.open)
    }

    /// How many connections were ever accepted.
    pub fn connections_accepted(&self) -> usize {
        self.server.connections().read(|c| c.accepted)
    }

    /// The last RPCs (10,000 at most), oldest first.
    pub fn calls(&self) -> Vec<Arc<Call>> {
        self.activity.read(|a| a.calls.iter().cloned().collect())
    }

    /// Waits until at least this many RPCs have reached it.
    ///
    /// # Errors
    /// When that does not happen in 10 seconds.
    pub async fn wait_count(&self, count: u64) -> Result<(), TimedOut> {
        self.wait(&format!("{count} RPCs"), |a| a.count >= count).await
    }

    /// Waits until exactly this many RPCs are in flight.
    ///
    /// # Errors
    /// When that does not happen in 10 seconds.
    pub async fn wait_in_flight(&self, count: usize) -> Result<(), TimedOut> {
        self.wait(&format!("{count} RPCs in flight"), |a| a.in_flight == count).await
    }

    /// Waits until exactly this many connections are open.
    ///
    /// # Errors
    /// When that does not happen in 10 seconds.
    pub async fn wait_connections(&self, count: usize) -> Result<(), TimedOut> {
        let what = format!("{count} connections of {}", self.name);
        let reached = |c: &crate::server::Connections| (c.open == count).then_some(());
        self.server.connections().wait(PATIENCE, what, reached, |c| format!("{} open", c.open)).await
    }

    /// Waits until at least this many connections were ever accepted.
    ///
    /// # Errors
    /// When that does not happen in 10 seconds.
    pub async fn wait_connections_accepted(&self, count: usize) -> Result<(), TimedOut> {
        let what = format!("{count} connections accepted by {}", self.name);
        let reached = |c: &crate::server::Connections| (c.accepted >= count).then_some(());
        self.server.connections().wait(PATIENCE, what, reached, |c| format!("{} accepted", c.accepted)).await
    }

    async fn wait(&self, what: &str, condition: impl Fn(&Activity) -> bool) -> Result<(), TimedOut> {
        let what = format!("{what} at {}", self.name);
        let seen = |a: &Activity| format!("{} RPCs, {} in flight", a.count, a.in_flight);
        self.activity.wait(PATIENCE, what, |a| condition(a).then_some(()), seen).await
    }
}
