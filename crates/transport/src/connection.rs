//! A live connection.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use crate::body::Body;
use crate::connection_task;
use crate::connector::BoxedIo;
use crate::disconnect::Disconnect;
use crate::error::SendError;
use crate::frame_tap::FrameTap;
use crate::go_away::GoAway;
use crate::options::ConnectOptions;
use crate::quota::Quota;
use crate::state::{LocalEnd, Lost, Shared, State};
use crate::stream_permit::StreamPermit;
use crate::upload::{Rest, Upload};

/// An HTTP/2 connection, whose server has sent its SETTINGS unless it is part of an [`Opening`](crate::Opening).
///
/// Dropping it closes it gracefully: open streams finish, then the socket is closed.
pub struct Connection<B> {
    shared: Arc<Shared>,
    task: AbortHandle,
    requests: PhantomData<fn(B)>,
}

impl<B> Connection<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Starts HTTP/2 on `io`. The connection is not open until SETTINGS arrive.
    pub(crate) async fn start(io: BoxedIo, options: &ConnectOptions) -> Result<Self, h2::Error> {
        let shared = Arc::new(Shared::new(options));
        let tap = FrameTap::new(io, Arc::clone(&shared));
        let (sender, http2) = builder(options).handshake(tap).await?;
        shared.set_sender(sender);
        let task = shared.spawn(connection_task::run(http2, options, Arc::clone(&shared)));
        Ok(Self { shared, task, requests: PhantomData })
    }

    /// Waits, in order of arrival, for one of the streams that the server's MAX_CONCURRENT_STREAMS allows, on this
    /// connection or one with the same [`ConnectOptions::queue`]. Sends nothing.
    ///
    /// # Errors
    /// If the connection takes no more streams.
    pub fn reserve(&self) -> impl Future<Output = Result<ReservedStream<B>, String>> + Send + use<B> {
        let permit = StreamPermit::take(Arc::clone(&self.shared));
        async move { Ok(ReservedStream { permit: permit.await?, request: PhantomData }) }
    }

    /// Reserves a stream and sends a request on it. Returns the head of the response. Dropping the future cancels the
    /// request.
    ///
    /// # Errors
    /// [`SendError`] says whether the server can have seen the request.
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

/// A stream that may be opened: the permit is held, nothing has been sent.
pub struct ReservedStream<B> {
    permit: StreamPermit,
    request: PhantomData<fn(B)>,
}

impl<B> ReservedStream<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    /// Sends a request. Returns the head of the response. Dropping the future cancels the request.
    ///
    /// # Errors
    /// [`SendError`] says whether the server can have seen the request.
    pub async fn send(self, request: Request<B>) -> Result<Response<Body>, SendError<B>> {
        let mut permit = self.permit;
        let shared = permit.shared();
        let Some(mut sender) = shared.sender() else {
            return Err(SendError::unsent(request, shared.refusal()));
        };
        let (mut head, body) = request.into_parts();
        strip_connection_headers(&mut head.headers);
        let no_body = body.is_end_stream();
        let (mut response, stream) = match sender.send_request(Request::from_parts(head, ()), no_body) {
            Ok(opened) => opened,
            Err(error) if error.is_io() || error.is_go_away() => {
                shared.on_refused(&error);
                return Err(SendError::Unsent { request: None, reason: shared.refusal() });
            }
            // Invalid on any connection: report it as a stream reset, so that it is not retried.
            Err(error) => {
                return Err(SendError::Failed {
                    reset: Some(h2::Reason::INTERNAL_ERROR.into()),
                    reason: format!("not a valid request: {error}"),
                });
            }
        };
        drop(sender);
        permit.begin(response.stream_id().as_u32());
        let shared = permit.shared();
        let upload = if no_body {
            Rest::none()
        } else {
            let mut parts = Some((body, stream));
            poll_fn(|cx| {
                // Polled once, since it is ready at once.
                let upload = parts.take().map(|(body, stream)| Upload::begin(body, stream, cx, shared));
                Poll::Ready(upload.unwrap_or_else(Rest::none))
            })
            .await
        };
        match (&mut response).await {
            Ok(response) => Ok(response.map(|stream| Body::new(stream, upload, permit))),
            Err(error) => {
                let error = SendError::of_stream(&error, response.stream_id().as_u32(), shared);
                permit.end();
                Err(error)
            }
        }
    }
}

impl<B> ReservedStream<B> {
    /// [`ConnectOptions::tag`] of its connection.
    pub fn tag(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.permit.shared().tag.as_ref()
    }
}

impl<B> Connection<B> {
    /// Whether the connection takes new requests.
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// Whether a request that comes now need not wait for a stream.
    pub fn has_room(&self) -> bool {
        self.shared.quota.has_room()
    }

    /// The server's MAX_CONCURRENT_STREAMS, if it has set one.
    pub fn max_concurrent_streams(&self) -> Option<u32> {
        self.shared.quota.server_limit().and_then(|limit| u32::try_from(limit).ok())
    }

    /// From now on requests may wait for its streams.
    pub(crate) fn join_line(&self) {
        Quota::join_line(&self.shared);
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.shared.quota.in_use()
    }

    /// The last GOAWAY that the server sent.
    pub fn go_away(&self) -> Option<GoAway> {
        self.shared.go_away()
    }

    /// The reason why the connection is lost, for metrics.
    pub fn disconnect(&self) -> Disconnect {
        self.shared.disconnect()
    }

    /// Completes when the connection takes no new streams.
    pub async fn left_open(&self) -> Lost {
        self.shared.left_open().await
    }

    /// Completes when the socket is closed, with the cause.
    pub async fn closed(&self) -> String {
        let closed = |state: &State| matches!(state, State::Lost(Lost::Closed(_)));
        self.shared.wait_for(closed).await.reason().unwrap_or_default().to_owned()
    }

    /// Completes when SETTINGS have arrived.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        self.shared.ready().await
    }

    /// Takes no new requests; the connection is closed with its last stream.
    pub fn close_gracefully(&self) {
        self.shared.on_local_end(LocalEnd::Graceful);
        self.shared.release_sender_if_ending();
    }

    /// Closes the connection now, with all its streams.
    pub fn abort(&self) {
        self.shared.on_local_end(LocalEnd::Abort);
        self.shared.release_sender_if_ending();
        // Dropping the task closes the socket, and all streams fail.
        self.task.abort();
    }

    /// The tasks of this connection (and others with the same [`ConnectOptions::tasks`]).
    pub fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        // Without SETTINGS there is nothing to close gracefully.
        if self.shared.is_starting() { self.abort() } else { self.close_gracefully() }
    }
}

impl<B> fmt::Debug for Connection<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("state", &self.shared.state()).finish_non_exhaustive()
    }
}

/// Removes HTTP/1 connection headers, which are invalid in HTTP/2 (RFC 9113, section 8.2.2).
fn strip_connection_headers(headers: &mut HeaderMap) {
    let is_odd = |(name, value): (&HeaderName, &HeaderValue)| match name.as_str() {
        "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection" => true,
        "te" => value != "trailers",
        _ => false,
    };
    // Usually there are none.
    while let Some((name, _)) = headers.iter().find(|&header| is_odd(header)) {
        let name = name.clone();
        headers.remove(name);
    }
}

fn builder(options: &ConnectOptions) -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        // The first windows; ReceiveWindow enlarges them.
        .initial_window_size(options.initial_stream_window)
        .initial_connection_window_size(options.initial_connection_window)
        // RFC 9113, section 6.5.2; h2 panics beyond it.
        .max_frame_size(options.max_frame_size.clamp(1 << 14, (1 << 24) - 1))
        .max_header_list_size(options.max_header_list_size)
        .data_frame_budget(options.data_frame_budget())
        .max_send_buffer_size(1 << 20)
        // Deadlines cancel many streams at once, whose last frames still arrive. h2 counts each frame of a forgotten
        // stream as an error, and by default closes the connection after 1024 of them in its lifetime.
        .max_concurrent_reset_streams(1024)
        .max_local_error_reset_streams(Some(options.max_late_frames));
    builder
}
