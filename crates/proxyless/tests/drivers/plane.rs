//! A control plane on h2: state of the world over ADS, with several faults.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::Request;
use prost::Message;
use proxyless_testkit::{CDS, EDS, LDS, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::grpc::{Messages, begin, framed, trailers};
use crate::loads;
use crate::network::{Network, Serve};
use crate::trace::Trace;

/// The behaviour of a control plane on its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Good,
    /// Reads, and never responds.
    Mute,
    /// Ends each stream after its first response, with OK.
    EndAfterResponse,
    /// Ends each stream at once, with UNAVAILABLE.
    Refuse,
    /// Answers each request with all resources, of every type, in reverse order.
    Unasked,
    /// Sends updates but stops reading requests and granting windows.
    Deaf,
    /// Answers no request for endpoints.
    WithholdEndpoints,
}

/// A control plane. Clones share it.
#[derive(Clone)]
pub(crate) struct Plane {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    trace: Trace,
}

struct State {
    manner: Manner,
    /// By type and name, with the version of each.
    resources: BTreeMap<String, BTreeMap<String, (u64, Any)>>,
    version: u64,
    nonces: u64,
    /// The number of copies of all endpoints that each stream sends next, and the number of the burst.
    burst: (u64, usize),
    counts: Counts,
    /// The time of the last report of each open LRS stream, by stream number.
    reports: BTreeMap<u64, Instant>,
    load_streams: u64,
}

/// Counts of the clients' actions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) streams: usize,
    /// Requests on the streams.
    pub(crate) requests: usize,
    pub(crate) load_streams: usize,
}

impl Plane {
    /// Adds a healthy control plane to the network.
    pub(crate) fn start(network: &Network, address: SocketAddr) -> Self {
        let state = State {
            manner: Manner::Good,
            resources: BTreeMap::new(),
            version: 0,
            nonces: 0,
            burst: (0, 0),
            counts: Counts::default(),
            reports: BTreeMap::new(),
            load_streams: 0,
        };
        let changed = Arc::new(watch::Sender::new(0));
        let plane =
            Self { address, state: Arc::new(Mutex::new(state)), changed, trace: network.trace().clone() };
        network.host(address, plane.server());
        plane
    }

    /// The service of its connections while its HTTP/2 is correct.
    pub(crate) fn server(&self) -> Serve {
        let plane = self.clone();
        Arc::new(move |io| {
            let plane = plane.clone();
            Box::pin(async move {
                let mut builder = h2::server::Builder::new();
                // So that a client that does not read is noticed soon.
                builder.initial_window_size(4 << 10);
                let Ok(mut connection) = builder.handshake(io).await else { return };
                let mut streams = JoinSet::new();
                // Ends when the client closes the connection.
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let plane = plane.clone();
                    streams.spawn(async move { drop(plane.serve(request, respond).await) });
                    while streams.try_join_next().is_some() {}
                }
            })
        })
    }

    pub(crate) fn set_manner(&self, manner: Manner) {
        self.lock().manner = manner;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Adds or replaces resources, and notifies every stream.
    pub(crate) fn set(&self, resources: impl IntoIterator<Item = Resource>) {
        let mut state = self.lock();
        state.version += 1;
        let version = state.version;
        for resource in resources {
            let of_type = state.resources.entry(resource.type_url().into()).or_default();
            of_type.insert(resource.name().into(), (version, resource.value().clone()));
        }
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Sends the endpoints several times on each open stream, as fast as it can.
    pub(crate) fn burst(&self, copies: usize) {
        let mut state = self.lock();
        state.burst = (state.burst.0 + 1, copies);
        drop(state);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// The counts since [`forget_counts`](Self::forget_counts).
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn forget_counts(&self) {
        self.lock().counts = Counts::default();
    }

    pub(crate) fn manner(&self) -> Manner {
        self.lock().manner
    }

    /// Notifies of changed behaviour and resources.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// An LRS stream has begun.
    pub(crate) fn load_stream(&self) -> LoadStream<'_> {
        self.trace.note("LRS");
        let mut state = self.lock();
        state.counts.load_streams += 1;
        state.load_streams += 1;
        LoadStream { plane: self, number: state.load_streams }
    }

    /// Whether an open LRS stream has sent a report since then.
    pub(crate) fn has_reports_since(&self, since: Instant) -> bool {
        self.lock().reports.values().any(|&at| at >= since)
    }

    async fn serve(
        &self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Result<(), h2::Error> {
        if request.uri().path() == loads::PATH {
            return loads::serve(self, request, respond).await;
        }
        self.trace.note("ADS");
        self.lock().counts.streams += 1;
        let mut stream = Stream {
            plane: self,
            responses: begin(&mut respond)?,
            subscriptions: BTreeMap::new(),
            responded: false,
            bursts: self.lock().burst.0,
        };
        let mut requests = Messages::new(request.into_body());
        let mut changed = self.changed.subscribe();
        loop {
            let manner = self.lock().manner;
            match manner {
                Manner::Refuse => return stream.responses.send_trailers(trailers(14)),
                Manner::EndAfterResponse if stream.responded => {
                    return stream.responses.send_trailers(trailers(0));
                }
                _ => {}
            }
            tokio::select! {
                biased;
                request = requests.next(), if manner != Manner::Deaf => {
                    let Some(request) = request else { return Ok(()) };
                    let Ok(request) = DiscoveryRequest::decode(request) else { return Ok(()) };
                    stream.on_request(manner, request)?;
                }
                _ = changed.changed() => {}
            }
            // It may have been changed meanwhile.
            let manner = self.lock().manner;
            if manner != Manner::Mute {
                stream.push(manner)?;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One LRS stream, while it is open.
pub(crate) struct LoadStream<'a> {
    plane: &'a Plane,
    number: u64,
}

impl LoadStream<'_> {
    /// It has sent a report.
    pub(crate) fn note_report(&self) {
        self.plane.lock().reports.insert(self.number, Instant::now());
    }
}

impl Drop for LoadStream<'_> {
    fn drop(&mut self) {
        self.plane.lock().reports.remove(&self.number);
    }
}

/// One ADS stream.
struct Stream<'a> {
    plane: &'a Plane,
    responses: SendStream<Bytes>,
    subscriptions: BTreeMap<String, Subscription>,
    responded: bool,
    /// The bursts that came before, or were sent.
    bursts: u64,
}

#[derive(Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The versions that the client has.
    sent: BTreeMap<String, u64>,
    nonce: String,
}

impl Stream<'_> {
    fn on_request(&mut self, manner: Manner, request: DiscoveryRequest) -> Result<(), h2::Error> {
        self.plane.lock().counts.requests += 1;
        self.plane.trace.note(&format!("{} {:?}", request.type_url, request.resource_names));
        let subscription = self.subscriptions.entry(request.type_url).or_default();
        // A request that answers an older response is ignored.
        if request.response_nonce.is_empty() || request.response_nonce == subscription.nonce {
            subscription.names = request.resource_names.into_iter().collect();
            let names = &subscription.names;
            subscription.sent.retain(|name, _| names.contains(name));
        }
        if manner == Manner::Unasked && request.response_nonce.is_empty() {
            let types: Vec<String> = self.plane.lock().resources.keys().rev().cloned().collect();
            for type_url in types {
                let all = self.plane.lock().resources[&type_url].clone();
                self.send(&type_url, all)?;
            }
        }
        Ok(())
    }

    /// Sends the resources that the client does not have.
    fn push(&mut self, manner: Manner) -> Result<(), h2::Error> {
        let (burst, copies) = self.plane.lock().burst;
        if std::mem::replace(&mut self.bursts, burst) != burst {
            let all = self.plane.lock().resources[EDS].clone();
            for _ in 0..copies {
                self.send(EDS, all.clone())?;
            }
        }
        let types: Vec<String> = self.subscriptions.keys().cloned().collect();
        for type_url in types {
            if manner == Manner::WithholdEndpoints && type_url == EDS {
                continue;
            }
            let Subscription { names, sent, .. } = &self.subscriptions[&type_url];
            let state = self.plane.lock();
            let Some(all) = state.resources.get(&type_url) else { continue };
            let mut wanted: BTreeMap<_, _> = all
                .iter()
                .filter(|(name, _)| names.contains(*name))
                .map(|(n, r)| (n.clone(), r.clone()))
                .collect();
            let is_new = |name: &String, version: u64| sent.get(name) != Some(&version);
            if !wanted.iter().any(|(name, (version, _))| is_new(name, *version)) {
                continue;
            }
            // A listener or cluster that is left out is deleted.
            if type_url != LDS && type_url != CDS {
                wanted.retain(|name, (version, _)| is_new(name, *version));
            }
            drop(state);
            self.send(&type_url, wanted)?;
            if manner == Manner::EndAfterResponse {
                return Ok(());
            }
        }
        Ok(())
    }

    fn send(&mut self, type_url: &str, resources: BTreeMap<String, (u64, Any)>) -> Result<(), h2::Error> {
        let mut state = self.plane.lock();
        state.nonces += 1;
        let nonce = format!("n{}", state.nonces);
        let version_info = state.version.to_string();
        drop(state);
        let subscription = self.subscriptions.entry(type_url.into()).or_default();
        subscription.nonce.clone_from(&nonce);
        let mut response =
            DiscoveryResponse { version_info, nonce, type_url: type_url.into(), ..Default::default() };
        for (name, (version, value)) in resources {
            subscription.sent.insert(name, version);
            response.resources.push(value);
        }
        self.responded = true;
        self.responses.send_data(framed(&response), false)
    }
}
