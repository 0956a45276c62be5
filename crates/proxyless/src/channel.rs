//! [`XdsChannel`]: what tonic's generated clients are given.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::uri::Authority;
use http::{Request, Response};
use proxyless_balancer::api::ConnectivityState;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tower_service::Service;

use crate::builder::XdsChannelBuilder;
use crate::call::{self, CallSettings, XdsBody};
use crate::drive::channel::{Command, ask_for_report};
use crate::error::ConnectError;
use crate::inspect::{ChannelReport, ChannelTree};
use crate::snapshot::Published;

/// A channel to the service that an `xds:///` target names. Cheap to clone; all clones are one channel.
///
/// It is a [`tower_service::Service`] for gRPC requests, so every client that tonic generates takes it as it is, also
/// under a `ServiceBuilder`. Nothing happens until the first RPC (or [`ready`](Self::ready)); then the channel asks the
/// management server of its bootstrap for the configuration and follows it. When the last clone is dropped, its tasks
/// and connections end.
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
    /// The default `:authority` (A27-62); `None` if the name is no valid one.
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
    /// If the target is no xds target, if the bootstrap is missing or broken (every problem is listed), or if the
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
    pub fn state(&self) -> ConnectivityState {
        *self.shared.published.states().borrow()
    }

    /// A view of the channel's state that can be awaited for changes. Does not make the channel connect.
    #[must_use]
    pub fn watch_state(&self) -> watch::Receiver<ConnectivityState> {
        self.shared.published.states()
    }

    /// Connects if the channel is IDLE, and completes when it is READY. Bound it with `tokio::time::timeout`: a channel
    /// whose service does not exist waits for it.
    pub async fn ready(&self) {
        self.shared.exit_idle();
        // The sender lives as long as this channel does.
        let _ = self.shared.published.states().wait_for(|state| *state == ConnectivityState::Ready).await;
    }

    /// All that there is to see of the channel: calls, routes, policies, connections, events. `None` only if the runtime
    /// that the channel was made in has ended.
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
    /// Leaves IDLE, once.
    pub(crate) fn exit_idle(&self) {
        if self.published.start() {
            self.tell(Command::ExitIdle);
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
