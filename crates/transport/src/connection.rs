//! A live connection.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, Response};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tracing::debug;

use crate::body::Body;
use crate::connector::BoxedIo;
use crate::error::{Failure, SendError};
use crate::frame_tap::FrameTap;
use crate::go_away::GoAway;
use crate::options::ConnectOptions;
use crate::state::{ConnectionState, LocalEnd, Lost, Shared};
use crate::stream::{Receiving, Sending, SendingEnd, Stream};
use crate::tasks::{Executor, Tasks};

/// An HTTP/2 connection whose server has sent its SETTINGS.
///
/// Dropping it closes it gracefully: streams that exist finish, then the socket goes.
pub struct Connection<B> {
    /// Emptied when no more requests may be sent: hyper ends a connection that has neither senders nor streams.
    sender: Arc<ArcSwapOption<SendRequest<Sending<B>>>>,
    shared: Arc<Shared>,
    executor: Executor,
    tasks: Tasks,
}

impl<B> Connection<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Starts HTTP/2 on `io`. The connection is not open until SETTINGS arrive.
    pub(crate) async fn start(io: BoxedIo, options: &ConnectOptions) -> Result<Self, hyper::Error> {
        let shared = Arc::new(Shared::new(options.keepalive_interval.map(|_| options.keepalive_timeout)));
        let executor = Executor::new(options.tasks.clone());
        let (alive, socket_gone) = oneshot::channel();
        let tap = FrameTap::new(io, Arc::clone(&shared), alive);
        let (sender, dispatch) = builder(options, executor.clone()).handshake(TokioIo::new(tap)).await?;
        options.tasks.spawn({
            let shared = CloseOnDrop(Arc::clone(&shared));
            async move {
                let CloseOnDrop(shared) = &shared;
                let result = dispatch.await;
                shared.on_dispatch_end(&result);
                // Ends with an error, by design: the sender is never used, only dropped.
                let _ = socket_gone.await;
                shared.on_socket_gone(&result);
                debug!(target: "subchannel", state = ?shared.state(), "connection closed");
            }
        });
        let sender = Arc::new(ArcSwapOption::from_pointee(sender));
        Ok(Self { sender, shared, executor, tasks: options.tasks.clone() })
    }

    /// Waits, in order of arrival, for a place among the streams that the server's MAX_CONCURRENT_STREAMS allows.
    /// Nothing is sent yet. The place is to be used at once: a GOAWAY is held back from hyper for it.
    ///
    /// # Errors
    /// Why the connection takes no more streams.
    pub fn reserve(&self) -> impl Future<Output = Result<Reserved<B>, String>> + Send + use<B> {
        let sender = Arc::clone(&self.sender);
        let shared = Arc::clone(&self.shared);
        async move {
            match Stream::open(&shared).await {
                Some((receiving, end)) => Ok(Reserved { sender, shared, receiving, end }),
                None => Err(shared.refusal()),
            }
        }
    }

    /// Reserves a place and sends a request in it. Resolves with the response's head. Dropping the future cancels the
    /// request.
    ///
    /// # Errors
    /// See [`SendError`]: it says whether the server can have seen the request.
    pub fn send(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Body>, SendError<B>>> + Send + use<B> {
        let reserved = self.reserve();
        async move {
            match reserved.await {
                Ok(reserved) => reserved.send(request).await,
                Err(reason) => Err(SendError::unsent(request, reason)),
            }
        }
    }
}

/// A place among a connection's streams.
pub struct Reserved<B> {
    sender: Arc<ArcSwapOption<SendRequest<Sending<B>>>>,
    shared: Arc<Shared>,
    receiving: Receiving,
    end: SendingEnd,
}

impl<B> Reserved<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Sends a request. Resolves with the response's head. Dropping the future cancels the request.
    ///
    /// # Errors
    /// See [`SendError`]: it says whether the server can have seen the request.
    pub async fn send(self, request: Request<B>) -> Result<Response<Body>, SendError<B>> {
        let Self { sender, shared, receiving, end } = self;
        let Some(mut sender) = sender.load().as_deref().cloned() else {
            return Err(SendError::unsent(request, shared.refusal()));
        };
        let response = sender.try_send_request(request.map(|body| Sending::new(body, end)));
        // A sender that outlives the request keeps the connection from closing.
        drop(sender);
        match response.await {
            Ok(response) => Ok(response.map(|incoming| Body::new(incoming, receiving))),
            Err(mut error) => Err(match error.take_message() {
                Some(request) => SendError::unsent(request.map(Sending::into_body), shared.refusal()),
                None => match Failure::of(error.error(), &shared) {
                    Failure::Unprocessed { reason, .. } => SendError::Refused { reason },
                    Failure::Failed { reset, reason } => SendError::Failed { reset, reason },
                },
            }),
        }
    }
}

impl<B> Connection<B> {
    /// Where the connection is in its life.
    pub fn state(&self) -> ConnectionState {
        // A connection is only handed out after SETTINGS.
        self.shared.state().unwrap_or(ConnectionState::Open)
    }

    /// Whether new requests are welcome.
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// How many streams are open now.
    pub fn streams(&self) -> usize {
        self.shared.quota.in_use()
    }

    /// The last GOAWAY that the server sent.
    pub fn go_away(&self) -> Option<GoAway> {
        self.shared.go_away()
    }

    /// Completes when no new stream can be opened any more.
    pub async fn left_open(&self) -> Lost {
        let left = |state: &Option<_>| !matches!(state, None | Some(ConnectionState::Open));
        match self.shared.wait_for(left).await {
            ConnectionState::Closed { reason } => Lost::Closed(reason),
            ConnectionState::GoingAway { reason } => Lost::GoAway(reason),
            // Not reached: the wait is for the other two.
            ConnectionState::Open => Lost::Closed(String::new()),
        }
    }

    /// Completes when the socket is gone, with the cause.
    pub async fn closed(&self) -> String {
        let closed = |state: &Option<_>| matches!(state, Some(ConnectionState::Closed { .. }));
        match self.shared.wait_for(closed).await {
            ConnectionState::Closed { reason } | ConnectionState::GoingAway { reason } => reason,
            // Not reached: the wait is for `Closed`.
            ConnectionState::Open => String::new(),
        }
    }

    /// Completes when SETTINGS have arrived.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.shared.ready().await
    }

    /// Takes no new requests; the connection ends with its last stream.
    pub fn close_gracefully(&self) {
        self.shared.on_local_end(LocalEnd::Graceful);
        self.sender.store(None);
    }

    /// Ends the connection now, and with it all its streams.
    pub fn abort(&self) {
        self.shared.on_local_end(LocalEnd::Abort);
        self.sender.store(None);
        self.executor.abort();
    }

    /// The count of the tasks that work for this connection (and others with the same [`ConnectOptions::tasks`]).
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.close_gracefully();
    }
}

impl<B> fmt::Debug for Connection<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// Closes even if the task is dropped unfinished: its runtime ended, or a user's body panicked in it.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn builder(options: &ConnectOptions, executor: Executor) -> Builder<Executor> {
    let mut builder = Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        // Fixed windows: hyper's adaptive ones send PINGs, which gRPC servers count as abuse.
        .initial_stream_window_size(options.initial_stream_window)
        .initial_connection_window_size(options.initial_connection_window)
        .max_header_list_size(options.max_header_list_size)
        .keep_alive_interval(options.keepalive_interval)
        .keep_alive_timeout(options.keepalive_timeout)
        .keep_alive_while_idle(options.keepalive_while_idle)
        // Deadlines cancel many streams at once, and their last frames still come in. h2 counts each frame of a
        // forgotten stream as an error and gives the connection up after 1024 of them in its whole life.
        .max_concurrent_reset_streams(1024)
        .max_local_error_reset_streams(None);
    builder
}
