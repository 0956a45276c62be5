//! An HTTP CONNECT proxy (A86).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::observed::{Observed, PATIENCE, TimedOut};
use crate::server::Port;

/// The maximum length of a request.
const MAX_REQUEST: u64 = 8 * 1024;

/// An HTTP CONNECT proxy on a loopback port. It connects to any address that a client asks for, until it is told to do
/// something else. Everything ends when it is dropped.
///
/// [`EndpointExt::proxy`](crate::resources::EndpointExt::proxy) and
/// [`ClusterExt::http_connect`](crate::resources::ClusterExt::http_connect) make a client use it.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    state: Arc<Observed<State>>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct State {
    answer: Answer,
    requests: Vec<String>,
    tunnels: usize,
    open: usize,
}

/// The answer to the next requests.
#[derive(Clone, Debug, Default)]
enum Answer {
    #[default]
    Tunnel,
    Nothing,
    Once(Vec<u8>),
    Endlessly(Vec<u8>, Vec<u8>),
}

impl Proxy {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let port = Port::reserve()?;
        let listener = port.listen()?;
        let state = Arc::new(Observed::new(State::default()));
        let task = tokio::spawn(serve(listener, Arc::clone(&state))).abort_handle();
        Ok(Self { port, state, task })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Refuses the next requests with this status and reason phrase.
    pub fn refuse(&self, status: u16, reason: &str) {
        let response = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\n\r\n");
        self.answer_with(response);
    }

    /// Answers the next requests with these bytes, and leaves the connections open.
    pub fn answer_with(&self, bytes: impl Into<Vec<u8>>) {
        self.state.update(|state| state.answer = Answer::Once(bytes.into()));
    }

    /// Answers the next requests with the first bytes, then with the others again and again.
    pub fn answer_endlessly(&self, first: impl Into<Vec<u8>>, others: impl Into<Vec<u8>>) {
        self.state.update(|state| state.answer = Answer::Endlessly(first.into(), others.into()));
    }

    /// Does not answer the next requests.
    pub fn hang(&self) {
        self.state.update(|state| state.answer = Answer::Nothing);
    }

    /// Opens tunnels again.
    pub fn recover(&self) {
        self.state.update(|state| state.answer = Answer::Tunnel);
    }

    /// The requested addresses, in order, answered or not.
    pub fn requests(&self) -> Vec<String> {
        self.state.read(|state| state.requests.clone())
    }

    /// The number of tunnels that were opened so far.
    pub fn tunnels(&self) -> usize {
        self.state.read(|state| state.tunnels)
    }

    /// The number of tunnels that are open now.
    pub fn open_tunnels(&self) -> usize {
        self.state.read(|state| state.open)
    }

    /// Waits until at least this many requests have arrived.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_requests(&self, count: usize) -> Result<(), TimedOut> {
        self.wait(format!("{count} requests"), |state| state.requests.len() >= count).await
    }

    /// Waits until exactly this many tunnels are open.
    ///
    /// # Errors
    /// If that takes more than 10 seconds.
    pub async fn wait_open_tunnels(&self, count: usize) -> Result<(), TimedOut> {
        self.wait(format!("{count} open tunnels"), |state| state.open == count).await
    }

    async fn wait(&self, what: String, holds: impl Fn(&State) -> bool) -> Result<(), TimedOut> {
        let find = |state: &State| holds(state).then_some(());
        self.state.wait(PATIENCE, what, find, |state| format!("{state:?}")).await
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Observed<State>>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    // The client notices the end of its connection.
                    let _ = answer(client, &state).await;
                });
            }
            Err(_) => tokio::task::yield_now().await,
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(mut client: TcpStream, state: &Observed<State>) -> io::Result<()> {
    let server = read_request(&mut client).await?;
    let answer = state.update(|state| {
        state.requests.push(server.clone());
        state.answer.clone()
    });
    match answer {
        Answer::Tunnel => tunnel(client, &server, state).await,
        Answer::Nothing => until_closed(&mut client).await,
        Answer::Once(bytes) => {
            client.write_all(&bytes).await?;
            until_closed(&mut client).await
        }
        Answer::Endlessly(first, others) => {
            client.write_all(&first).await?;
            loop {
                client.write_all(&others).await?;
            }
        }
    }
}

/// The address in a CONNECT request.
async fn read_request(client: &mut TcpStream) -> io::Result<String> {
    let mut request = Vec::new();
    let mut limited = client.take(MAX_REQUEST);
    // The client says nothing more before it has an answer.
    while !request.ends_with(b"\r\n\r\n") {
        if limited.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let request = String::from_utf8_lossy(&request);
    let mut words = request.split(' ');
    match (words.next(), words.next()) {
        (Some("CONNECT"), Some(server)) => Ok(server.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn tunnel(mut client: TcpStream, server: &str, state: &Observed<State>) -> io::Result<()> {
    let mut server = match TcpStream::connect(server).await {
        Ok(server) => server,
        Err(error) => {
            let response = format!("HTTP/1.1 502 {error}\r\nContent-Length: 0\r\n\r\n");
            return client.write_all(response.as_bytes()).await;
        }
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    state.update(|state| (state.tunnels, state.open) = (state.tunnels + 1, state.open + 1));
    let result = copy_bidirectional(&mut client, &mut server).await;
    state.update(|state| state.open -= 1);
    result.map(drop)
}

async fn until_closed(client: &mut TcpStream) -> io::Result<()> {
    let mut ignored = [0; 64];
    while client.read(&mut ignored).await? > 0 {}
    Ok(())
}
