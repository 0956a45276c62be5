//! A hostile server on the port of a control plane that is gone for a while: runs a script on each connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::common::PATIENCE;
use super::exchange::{Exchange, ServerLimits};

pub(crate) type Scripted = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The record of the client's actions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
    /// Of ADS.
    pub(crate) requests: usize,
    /// Requests of the load reporting service.
    pub(crate) reports: usize,
    pub(crate) acks: usize,
    pub(crate) nacks: usize,
    /// The texts of the last NACKs.
    pub(crate) why: VecDeque<String>,
    /// The number of scripts that have finished.
    pub(crate) done: usize,
    /// The time of each connection.
    pub(crate) connected: Vec<Instant>,
    /// The time of each stream.
    pub(crate) opened: Vec<Instant>,
}

impl Seen {
    pub(crate) fn nacked(&mut self, why: &str) {
        self.nacks += 1;
        self.why.push_back(why.to_owned());
        if self.why.len() > 20 {
            self.why.pop_front();
        }
    }
}

/// Records events.
#[derive(Clone)]
pub(crate) struct Log(Arc<watch::Sender<Seen>>);

impl Log {
    pub(crate) fn note(&self, change: impl FnOnce(&mut Seen)) {
        self.0.send_modify(change);
    }

    pub(crate) fn done(&self) {
        self.note(|seen| seen.done += 1);
    }
}

/// The script of a connection.
#[derive(Clone)]
pub(crate) enum Attack {
    /// Raw bytes.
    Raw(Arc<dyn Fn(TcpStream, Log) -> Scripted + Send + Sync>),
    /// Valid HTTP/2, stream by stream.
    Streams(ServerLimits, Arc<dyn Fn(Exchange) -> Scripted + Send + Sync>),
}

impl Attack {
    pub(crate) fn raw<F>(script: impl Fn(TcpStream, Log) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Raw(Arc::new(move |io, log| Box::pin(script(io, log))))
    }

    pub(crate) fn streams<F>(script: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Streams(ServerLimits::default(), Arc::new(move |exchange| Box::pin(script(exchange))))
    }

    pub(crate) fn with(self, limits: ServerLimits) -> Self {
        match self {
            Self::Streams(_, script) => Self::Streams(limits, script),
            raw => raw,
        }
    }
}

pub(crate) struct Hostile {
    log: Log,
    stop: CancellationToken,
    tasks: TaskTracker,
    since: Instant,
}

impl Hostile {
    /// Listens on the free port.
    pub(crate) fn start(address: SocketAddr, attack: Attack) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option");
        socket.bind(address).expect("the port is reserved for the control plane");
        let listener = socket.listen(64).expect("nobody listens");
        let log = Log(Arc::new(watch::Sender::default()));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let hostile =
            Self { log: log.clone(), stop: stop.clone(), tasks: tasks.clone(), since: Instant::now() };
        let spawner = (stop.clone(), tasks.clone());
        tasks.spawn(stop.run_until_cancelled_owned(async move {
            let (stop, tasks) = spawner;
            while let Ok((io, _)) = listener.accept().await {
                log.note(|seen| {
                    seen.connections += 1;
                    seen.connected.push(Instant::now());
                });
                let (attack, log) = (attack.clone(), log.clone());
                let (inner_stop, inner_tasks) = (stop.clone(), tasks.clone());
                tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
                    match attack {
                        Attack::Raw(script) => script(io, log).await,
                        Attack::Streams(limits, script) => {
                            Exchange::serve(io, limits, script, log, inner_stop, inner_tasks).await;
                        }
                    }
                }));
            }
        }));
        hostile
    }

    pub(crate) fn seen(&self) -> Seen {
        self.log.0.borrow().clone()
    }

    /// Waits until the client has done something.
    pub(crate) async fn wait(&self, what: &str, until: impl Fn(&Seen) -> bool) -> Seen {
        self.wait_for(PATIENCE, what, until).await
    }

    pub(crate) async fn wait_for(
        &self,
        patience: Duration,
        what: &str,
        until: impl Fn(&Seen) -> bool,
    ) -> Seen {
        let mut seen = self.log.0.subscribe();
        let found = tokio::time::timeout(patience, seen.wait_for(until)).await;
        match found {
            Ok(seen) => seen.expect("the log lives").clone(),
            Err(_) => panic!("{what}: not in {patience:?}; seen: {:?}", self.seen()),
        }
    }

    /// Ends it with all its connections, and checks that the client kept its backoff.
    pub(crate) async fn stop(self, what: &str) {
        let Seen { connections, .. } = self.seen();
        // The first backoff is a second, plus or minus 20 %.
        let allowed = 2 + (self.since.elapsed().as_millis() / 800) as usize;
        assert!(connections <= allowed, "{what}: {connections} connections, {allowed} are allowed");
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
