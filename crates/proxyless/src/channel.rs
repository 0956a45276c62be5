//! [`XdsChannel`]: what tonic's generated clients are given.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::Authority;
use http::{Request, Response};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tonic::Status;
use tower_service::Service;

use crate::builder::XdsChannelBuilder;
use crate::call::{self, CallSettings, XdsBody};
use crate::drive::channel::{Command, ask_for_report};
use crate::error::ConnectError;
use crate::inspect::{ChannelReport, ChannelTree};
use crate::snapshot::{Published, Snapshot};
use crate::state::ChannelState;

/// A channel to the service that an `xds:///` target names. Cheap to clone; all clones are one channel.
///
/// It is a [`tower_service::Service`] for gRPC requests, so every client that tonic generates takes it as it is, also
/// under a `ServiceBuilder`. Nothing happens until the first RPC (or [`ready`](Self::ready)); then the channel asks the
/// management server of its bootstrap for the configuration and follows it. After half an hour without RPCs
/// ([`XdsChannelBuilder::idle_timeout`]) it gives all that up until the next one. When the last clone is dropped, its
/// tasks and connections end.
///
/// RPCs may be polled anywhere, also outside of a tokio runtime; their timers run in the runtime that the channel was made
/// in. No more than 1,024 of them are in flight to one cluster at a time, from all channels of the process together, unless
/// the control plane sets another limit (`circuit_breakers` of the Cluster, `max_requests`; gRFC A32): what is above fails
/// with UNAVAILABLE.
///
/// ```no_run
/// # fn main() -> Result<(), proxyless::ConnectError> {
/// # let runtime = tokio::runtime::Runtime::new().unwrap();
/// # let _guard = runtime.enter();
/// // The bootstrap comes from GRPC_XDS_BOOTSTRAP or GRPC_XDS_BOOTSTRAP_CONFIG.
/// let channel = proxyless::XdsChannel::connect("xds:///greeter.example:50051")?;
/// // let mut client = GreeterClient::new(channel);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct XdsChannel {
    shared: Arc<Shared>,
}

/// What all clones and all RPCs of a channel share.
pub(crate) struct Shared {
    pub(crate) target: Arc<str>,
    /// The default `:authority` (A27-62); `None` if the name is not a valid one.
    pub(crate) authority: Option<Authority>,
    /// The management server and the node's id, for error messages.
    pub(crate) server: Arc<str>,
    pub(crate) node: Arc<str>,
    pub(crate) published: Arc<Published>,
    /// What hash policies on the channel's identity hash (gRFC A42).
    pub(crate) channel_id: u64,
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) calls: CallSettings,
}

impl XdsChannel {
    /// A channel to an `xds:` target, with the bootstrap that the environment names.
    ///
    /// # Errors
    /// If the target is not an xds target, if the bootstrap is missing or invalid (every problem is listed), or if the
    /// caller is not inside a tokio runtime.
    pub fn connect(target: &str) -> Result<Self, ConnectError> {
        Self::builder(target).build()
    }

    /// A channel with options.
    pub fn builder(target: &str) -> XdsChannelBuilder {
        XdsChannelBuilder::new(target)
    }

    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The target that it was made with.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.shared.target
    }

    /// The state of the channel now.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        *self.shared.published.states().borrow()
    }

    /// A view of the channel's state that can be awaited for changes. Does not make the channel connect, nor keep it from
    /// going IDLE.
    #[must_use]
    pub fn watch_state(&self) -> watch::Receiver<ChannelState> {
        self.shared.published.states()
    }

    /// Connects if the channel is IDLE, and completes when it is READY.
    ///
    /// It waits as long as that takes: a service that does not exist yet may appear. [`Self::ready_within`] gives up and
    /// says why; with a timeout of your own, ask [`Self::why_not_ready`]. RPCs wait for a connection themselves, so this
    /// need not be called before them.
    ///
    /// A policy that connects only for RPCs (ring_hash) stays IDLE until there is one, and this waits until then.
    ///
    /// # Errors
    /// UNAVAILABLE if the channel will never be READY: it is [`ChannelState::Shutdown`].
    ///
    /// ```no_run
    /// # async fn example(channel: proxyless::XdsChannel) -> Result<(), tonic::Status> {
    /// channel.ready().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready(&self) -> Result<(), Status> {
        // Who waits for the channel uses it.
        let _in_use = self.shared.published.activity().begin();
        let mut states = self.shared.published.states();
        loop {
            let state = *states.borrow_and_update();
            match state {
                ChannelState::Ready => return Ok(()),
                // Each time: it may have been READY and IDLE again since.
                ChannelState::Idle => self.shared.tell(Command::ExitIdle),
                ChannelState::Connecting | ChannelState::TransientFailure => {}
                ChannelState::Shutdown => self.shared.check_ended()?,
            }
            // The sender lives as long as this channel does.
            let _ = states.changed().await;
        }
    }

    /// [`Self::ready`], but not for longer than this. Needs a tokio runtime with timers.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED with what [`Self::why_not_ready`] says, or as [`Self::ready`].
    ///
    /// ```no_run
    /// # async fn example(channel: proxyless::XdsChannel) -> Result<(), tonic::Status> {
    /// // At the start of a program: better now than with the first RPC.
    /// channel.ready_within(std::time::Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ready_within(&self, timeout: Duration) -> Result<(), Status> {
        if let Ok(ready) = tokio::time::timeout(timeout, self.ready()).await {
            return ready;
        }
        match self.why_not_ready().await {
            Some(why) => {
                Err(Status::deadline_exceeded(format!("not ready after {timeout:.3?}: {}", why.message())))
            }
            // It has become so at the last moment.
            None => Ok(()),
        }
    }

    /// Why the channel is not READY: what RPCs fail with, which resources have not come, what connections failed with.
    /// `None` if it is READY. Does not make the channel connect. Needs a tokio runtime with timers.
    pub async fn why_not_ready(&self) -> Option<Status> {
        let Shared { target, server, node, published, .. } = &*self.shared;
        let state = match self.state() {
            ChannelState::Ready => return None,
            ChannelState::Shutdown => return self.shared.check_ended().err(),
            ChannelState::Idle => {
                let why = match published.load().data {
                    None => "it is not in use",
                    Some(_) => "its policies connect when there is an RPC to send",
                };
                return Some(Status::unavailable(format!("{target} is IDLE: {why}")));
            }
            state @ (ChannelState::Connecting | ChannelState::TransientFailure) => state,
        };
        // A runtime that nobody runs must not make this hang.
        const PATIENCE: Duration = Duration::from_secs(1);
        let report = match tokio::time::timeout(PATIENCE, self.report()).await {
            Ok(report) => report,
            Err(_) => {
                let why = format!("{target} is {state}: its runtime is busy, or nobody runs it");
                return Some(Status::unavailable(why));
            }
        };
        let missing = published.missing();
        Some(Status::unavailable(match report.as_ref().and_then(ChannelReport::failure) {
            Some(failure) => format!("{target} is {state}: {failure}"),
            None if missing.is_empty() => format!("{target} is {state}"),
            None => format!("{target} is {state}{missing} (management server {server}, node {node})"),
        }))
    }

    /// All that there is to see of the channel: calls, routes, policies, connections, events. `None` only if the channel
    /// is [`ChannelState::Shutdown`], or its task panicked at that moment.
    ///
    /// Costs RPCs nothing: the channel's task answers between two events.
    pub async fn report(&self) -> Option<ChannelReport> {
        ask_for_report(&self.shared.commands).await
    }

    /// The routes and the policy tree; draw them with `to_string`, or serialize them. `None` as in [`Self::report`].
    pub async fn tree(&self) -> Option<ChannelTree> {
        Some(self.report().await?.tree)
    }

    /// Makes connections that wait for their backoff try again now, as after a change of network.
    pub fn reset_connect_backoff(&self) {
        self.shared.tell(Command::ResetBackoff);
    }
}

impl Shared {
    /// If the channel is IDLE, makes it connect. The first to find it so tells the driver.
    pub(crate) fn exit_idle(&self, snapshot: &Snapshot) {
        if snapshot.is_first_use() {
            self.tell(Command::ExitIdle);
        }
    }

    /// An error if nothing will be published any more.
    pub(crate) fn check_ended(&self) -> Result<(), Status> {
        match self.published.ended() {
            Some(end) => Err(Status::unavailable(format!("{}: {end}", self.target))),
            None => Ok(()),
        }
    }

    fn tell(&self, command: Command) {
        // The driver is gone only with its runtime; RPCs then fail and say so.
        let _ = self.commands.send(command);
    }
}

impl Service<Request<tonic::body::Body>> for XdsChannel {
    type Response = Response<XdsBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    /// Always ready: which connection an RPC needs is known only when it is routed, so waiting happens per RPC.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(call::call(Arc::clone(&self.shared), request))
    }
}

impl fmt::Debug for XdsChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdsChannel").field("target", &self.target()).field("state", &self.state()).finish()
    }
}
