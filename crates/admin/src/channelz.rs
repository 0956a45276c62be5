//! channelz v1 (gRFC A14): channels, their subchannels and sockets, calls, and traces.
//!
//! The time of the last call is omitted: recording it would slow down every call.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use proxyless::inspect::{
    CallsView, CertificateView, ChannelView, Detail, Event, Severity, SocketView, SubchannelView, TlsView,
};
use proxyless::{ClientPool, ConnectivityState};
use tonic::{Request, Response, Status};

use crate::channelz_proto::address::TcpIpAddress;
use crate::channelz_proto::channel_connectivity_state::State;
use crate::channelz_proto::channel_trace_event::ChildRef;
use crate::channelz_proto::channelz_server::{self, ChannelzServer};
use crate::channelz_proto::security::tls::CipherSuite;
use crate::channelz_proto::security::{Model, Tls};
use crate::channelz_proto::{
    Address, Channel, ChannelConnectivityState, ChannelData, ChannelRef, ChannelTrace, ChannelTraceEvent,
    GetChannelRequest, GetChannelResponse, GetServerRequest, GetServerResponse, GetServerSocketsRequest,
    GetServerSocketsResponse, GetServersRequest, GetServersResponse, GetSocketRequest, GetSocketResponse,
    GetSubchannelRequest, GetSubchannelResponse, GetTopChannelsRequest, GetTopChannelsResponse, Security,
    Socket, SocketData, SocketRef, Subchannel, SubchannelRef, address, channel_trace_event,
};

/// The maximum number of channels in an answer, unless the request has a lower limit.
const MAX_RESULTS: usize = 100;

/// `grpc.channelz.v1.Channelz` for channels of this library; it has no servers.
#[derive(Clone, Debug)]
pub struct Channelz {
    clients: ClientPool,
}

impl Channelz {
    /// Covers the channels of a pool: [`ClientPool::global`] is that of the process.
    #[must_use]
    pub fn new(clients: ClientPool) -> Self {
        Self { clients }
    }

    pub(crate) fn into_service(self) -> ChannelzServer<Self> {
        ChannelzServer::new(self)
    }

    async fn find_subchannel<T>(
        &self,
        what: &str,
        id: i64,
        find: impl Fn(&ChannelView, &SubchannelView) -> Option<T>,
    ) -> Result<T, Status> {
        let channels = self.clients.channels().await;
        let mut found = channels.iter().flat_map(|channel| {
            channel.subchannels.iter().filter_map(|subchannel| find(channel, subchannel))
        });
        found.next().ok_or_else(|| Status::not_found(format!("there is no {what} {id}")))
    }
}

#[tonic::async_trait]
impl channelz_server::Channelz for Channelz {
    async fn get_top_channels(
        &self,
        request: Request<GetTopChannelsRequest>,
    ) -> Result<Response<GetTopChannelsResponse>, Status> {
        let GetTopChannelsRequest { start_channel_id, max_results } = request.into_inner();
        let limit = usize::try_from(max_results).ok().filter(|max| (1..MAX_RESULTS).contains(max));
        let mut channels = self.clients.channels().await;
        channels.retain(|channel| number(channel.id) >= start_channel_id);
        let end = channels.len() <= limit.unwrap_or(MAX_RESULTS);
        channels.truncate(limit.unwrap_or(MAX_RESULTS));
        Ok(Response::new(GetTopChannelsResponse { channel: channels.iter().map(channel).collect(), end }))
    }

    async fn get_channel(
        &self,
        request: Request<GetChannelRequest>,
    ) -> Result<Response<GetChannelResponse>, Status> {
        let id = request.into_inner().channel_id;
        let channels = self.clients.channels().await;
        let found = channels.iter().find(|channel| number(channel.id) == id);
        let found = found.ok_or_else(|| Status::not_found(format!("there is no channel {id}")))?;
        Ok(Response::new(GetChannelResponse { channel: Some(channel(found)) }))
    }

    async fn get_subchannel(
        &self,
        request: Request<GetSubchannelRequest>,
    ) -> Result<Response<GetSubchannelResponse>, Status> {
        let id = request.into_inner().subchannel_id;
        let find = |channel: &ChannelView, view: &SubchannelView| {
            (number(view.id) == id).then(|| subchannel(channel, view))
        };
        let found = self.find_subchannel("subchannel", id, find).await?;
        Ok(Response::new(GetSubchannelResponse { subchannel: Some(found) }))
    }

    async fn get_socket(
        &self,
        request: Request<GetSocketRequest>,
    ) -> Result<Response<GetSocketResponse>, Status> {
        let id = request.into_inner().socket_id;
        let find = |_: &ChannelView, view: &SubchannelView| {
            let live = view.sockets.iter().find(|live| number(live.id) == id)?;
            Some(socket(view, live))
        };
        let found = self.find_subchannel("socket", id, find).await?;
        Ok(Response::new(GetSocketResponse { socket: Some(found) }))
    }

    async fn get_servers(
        &self,
        _: Request<GetServersRequest>,
    ) -> Result<Response<GetServersResponse>, Status> {
        Ok(Response::new(GetServersResponse { end: true }))
    }

    async fn get_server(
        &self,
        request: Request<GetServerRequest>,
    ) -> Result<Response<GetServerResponse>, Status> {
        Err(Status::not_found(format!("there is no server {}", request.get_ref().server_id)))
    }

    async fn get_server_sockets(
        &self,
        request: Request<GetServerSocketsRequest>,
    ) -> Result<Response<GetServerSocketsResponse>, Status> {
        Err(Status::not_found(format!("there is no server {}", request.get_ref().server_id)))
    }
}

fn channel(view: &ChannelView) -> Channel {
    let trace = ChannelTrace {
        num_events_logged: number(view.events_total),
        creation_timestamp: Some(view.created.into()),
        events: view.events.iter().map(|event| trace_event(event, view)).collect(),
    };
    Channel {
        r#ref: Some(ChannelRef { channel_id: number(view.id), name: view.target.clone() }),
        data: Some(data(view.state, view.target.clone(), view.calls, trace)),
        subchannel_ref: view.subchannels.iter().map(subchannel_ref).collect(),
    }
}

fn subchannel(channel: &ChannelView, view: &SubchannelView) -> Subchannel {
    // A subchannel's events are those of its channel that mention it.
    let own = channel.events.iter().filter(|event| event.subchannel == Some(view.id));
    let own = own.map(|event| ChannelTraceEvent { child_ref: None, ..trace_event(event, channel) });
    let events: Vec<_> = own.chain(details(channel, view.address).map(detail_event)).collect();
    let trace = ChannelTrace {
        num_events_logged: number(events.len() as u64),
        creation_timestamp: events.first().and_then(|event| event.timestamp),
        events,
    };
    let sockets = view.sockets.iter();
    Subchannel {
        r#ref: Some(subchannel_ref(view)),
        data: Some(data(view.state, view.address.to_string(), view.calls, trace)),
        socket_ref: sockets.map(|live| socket_ref(view, live.id)).collect(),
    }
}

fn socket(view: &SubchannelView, live: &SocketView) -> Socket {
    let SocketView { id, calls, tls, .. } = live;
    // A86: the peer of the socket is the proxy, and the name is that of the endpoint.
    let remote = view.proxy.unwrap_or(view.address);
    let ip_address = match remote.ip() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let tcp = TcpIpAddress { ip_address, port: remote.port().into() };
    Socket {
        r#ref: Some(socket_ref(view, *id)),
        data: Some(SocketData {
            streams_started: number(calls.started),
            streams_succeeded: number(calls.succeeded),
            streams_failed: number(calls.failed),
        }),
        remote: Some(Address { address: Some(address::Address::TcpipAddress(tcp)) }),
        remote_name: view.address.to_string(),
        security: tls.as_ref().map(security),
    }
}

/// The certificates that both sides may have seen; keys are not part of a view.
fn security(tls: &TlsView) -> Security {
    let der = |certificate: &Option<CertificateView>| {
        certificate.as_ref().map_or_else(Vec::new, |c| c.der.to_vec())
    };
    Security {
        model: Some(Model::Tls(Tls {
            cipher_suite: Some(CipherSuite::StandardName(tls.cipher_suite.clone())),
            local_certificate: der(&tls.local),
            remote_certificate: der(&tls.remote),
        })),
    }
}

fn data(state: ConnectivityState, target: String, calls: CallsView, trace: ChannelTrace) -> ChannelData {
    let state = match state {
        ConnectivityState::Idle => State::Idle,
        ConnectivityState::Connecting => State::Connecting,
        ConnectivityState::Ready => State::Ready,
        ConnectivityState::TransientFailure => State::TransientFailure,
    };
    ChannelData {
        state: Some(ChannelConnectivityState { state: state.into() }),
        target,
        trace: Some(trace),
        calls_started: number(calls.started),
        calls_succeeded: number(calls.succeeded),
        calls_failed: number(calls.failed),
    }
}

fn trace_event(event: &Event, channel: &ChannelView) -> ChannelTraceEvent {
    let severity = match event.severity {
        Severity::Info => channel_trace_event::Severity::CtInfo,
        Severity::Warning => channel_trace_event::Severity::CtWarning,
        Severity::Error => channel_trace_event::Severity::CtError,
        _ => channel_trace_event::Severity::CtUnknown,
    };
    let subchannel = event.subchannel.and_then(|id| channel.subchannels.iter().find(|c| c.id == id));
    ChannelTraceEvent {
        description: event.description.clone(),
        severity: severity.into(),
        timestamp: Some(event.time.into()),
        child_ref: subchannel.map(|subchannel| ChildRef::SubchannelRef(subchannel_ref(subchannel))),
    }
}

/// The current details of policies about an address: ejections and sessions.
fn details(channel: &ChannelView, address: SocketAddr) -> impl Iterator<Item = &Detail> {
    let mut details = Vec::new();
    if let Some(root) = &channel.tree.root {
        root.walk(&mut |node| details.extend(&node.details));
    }
    let address = address.to_string();
    details.into_iter().filter(move |detail| detail.subject.split(',').any(|subject| subject == address))
}

/// channelz has no other place for it than the trace: it is the last event while it holds.
fn detail_event(detail: &Detail) -> ChannelTraceEvent {
    ChannelTraceEvent {
        description: detail.to_string(),
        severity: channel_trace_event::Severity::CtInfo.into(),
        timestamp: Some(SystemTime::now().into()),
        child_ref: None,
    }
}

fn subchannel_ref(view: &SubchannelView) -> SubchannelRef {
    SubchannelRef { subchannel_id: number(view.id), name: name(view) }
}

fn socket_ref(view: &SubchannelView, id: u64) -> SocketRef {
    SocketRef { socket_id: number(id), name: name(view) }
}

/// The address, and the proxy if there is one: subchannels of an address may differ in it.
fn name(view: &SubchannelView) -> String {
    match view.proxy {
        Some(proxy) => format!("{} through {proxy}", view.address),
        None => view.address.to_string(),
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
