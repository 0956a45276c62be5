//! The streams of one client to one method of its management servers: one task per stream, raw bytes in and out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use proxyless_sans_io::values::Code;
use proxyless_transport::panics::catch;
use proxyless_transport::{Body, grpc};
use proxyless_xds::StreamId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::debug;

use super::panics;
use crate::drive::management_server::{Connected, ManagementServer, OpeningConnection, ServerConnection};
use crate::targets;

/// The time that a stream waits for the server's stream limit.
///
/// A stream that has waited this long gets a connection of its own next time: of two streams (ADS and load reports) to a
/// server that allows one, the other would hold it forever.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time to look for the status of an ended stream behind unread messages.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// An event of a stream; the driver turns it into an input of its core.
pub(crate) struct StreamEvent {
    pub(crate) stream: StreamId,
    pub(crate) kind: StreamEventKind,
}

pub(crate) enum StreamEventKind {
    /// A byte stream is established and the call starts.
    Up,
    /// HTTP/2 has taken a request, and the connection is READY.
    Sent,
    Message(Bytes),
    /// The stream ended: the server's status code, if any, and the reason.
    Down {
        code: Option<Code>,
        reason: String,
    },
}

/// The streams that are open or being opened. A core requests one at a time for each server.
pub(crate) struct Streams {
    method: &'static str,
    max_message: usize,
    events: UnboundedSender<StreamEvent>,
    running: BTreeMap<StreamId, Running>,
}

struct Running {
    requests: UnboundedSender<Bytes>,
    reads: UnboundedSender<()>,
    task: AbortHandle,
}

impl Streams {
    /// Streams to `method`, and their events. A message of more than `max_message` bytes ends its stream.
    pub(crate) fn new(method: &'static str, max_message: usize) -> (Self, UnboundedReceiver<StreamEvent>) {
        let (events, inbox) = unbounded_channel();
        (Self { method, max_message, events, running: BTreeMap::new() }, inbox)
    }

    /// Opens a stream to a server.
    pub(crate) fn open(&mut self, server: &ManagementServer, stream: StreamId) {
        let (requests, request_inbox) = unbounded_channel();
        let (reads, read_inbox) = unbounded_channel();
        let sender = EventSender { stream, events: self.events.clone() };
        let (uploading, upload_end) = oneshot::channel();
        let (on_ready, ready) = oneshot::channel();
        let body = RequestStream {
            requests: request_inbox,
            taken: Vec::new(),
            had_turn: true,
            ready: Some(ready),
            unconfirmed: 0,
            sender: sender.clone(),
            _uploading: uploading,
        };
        let (server, method) = (server.clone(), self.method);
        let gate = Reads { permits: read_inbox, on_ready, upload_end, max_message: self.max_message };
        let task = tokio::spawn(async move {
            let mut end =
                SendDown { sender, end: End::from("the task of the stream ended unexpectedly".to_owned()) };
            let ended = catch(run(server, method, body, gate, &end.sender)).await;
            end.end = ended.unwrap_or_else(|panicked| {
                panics::log(&format_args!("stream {method}"), &panicked);
                format!("the task of the stream panicked: {panicked}").into()
            });
            debug!(target: targets::XDS_CLIENT, method, %stream, reason = %end.end.reason, "stream ended");
        });
        // Streams that have ended are forgotten.
        self.running.retain(|_, running| !running.task.is_finished());
        self.running.insert(stream, Running { requests, reads, task: task.abort_handle() });
    }

    pub(crate) fn close(&mut self, stream: StreamId) {
        self.running.remove(&stream);
    }

    pub(crate) fn send(&self, stream: StreamId, message: &[&[u8]]) {
        if let Some(running) = self.running.get(&stream) {
            // A stream that just ended reports that by its own event.
            let _ = running.requests.send(grpc::frame_parts(message));
        }
    }

    pub(crate) fn read_next(&self, stream: StreamId) {
        if let Some(running) = self.running.get(&stream) {
            let _ = running.reads.send(());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The end of a stream.
struct End {
    code: Option<Code>,
    reason: String,
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        Self { code: None, reason }
    }
}

impl From<grpc::Status> for End {
    fn from(status: grpc::Status) -> Self {
        Self { code: Some(status.code), reason: status.to_string() }
    }
}

/// The permits to read, and the events that end the wait for them.
struct Reads {
    permits: UnboundedReceiver<()>,
    max_message: usize,
    /// Tells the requests that the connection is READY.
    on_ready: oneshot::Sender<()>,
    /// An error once HTTP/2 has dropped the requests: the stream was reset, or its connection was lost.
    upload_end: oneshot::Receiver<Infallible>,
}

/// Opens the stream and reads it to its end, one message per permit. Returns the reason for its end.
async fn run(
    server: ManagementServer,
    method: &str,
    body: RequestStream,
    mut reads: Reads,
    sender: &EventSender,
) -> End {
    let (connection, response) = match begin(&server, method, body, reads.on_ready, sender).await {
        Ok(begun) => begun,
        Err(reason) => return reason.into(),
    };
    let mut messages = match grpc::MessageReader::new(response, reads.max_message) {
        Ok(messages) => messages,
        Err(status) => return status.into(),
    };
    loop {
        // The core permits no read while its answers cannot be sent, and on an ended stream they never can: the end
        // must be noticed without reading up to it.
        tokio::select! {
            biased;
            permit = reads.permits.recv() => if permit.is_none() {
                return "closed".to_owned().into();
            },
            reason = connection.closed() => return reason.into(),
            _ = &mut reads.upload_end => return last_words(&mut messages).await,
        }
        match messages.next().await {
            Ok(Some(message)) => sender.send(StreamEventKind::Message(message)),
            Ok(None) => return ENDED.to_owned().into(),
            Err(status) => return status.into(),
        }
    }
}

/// Connects and sends the head of a stream's call. Returns the head of the response. Tells `on_ready` when the connection is
/// READY.
async fn begin(
    server: &ManagementServer,
    method: &str,
    body: RequestStream,
    on_ready: oneshot::Sender<()>,
    sender: &EventSender,
) -> Result<(Arc<ServerConnection>, Response<Body>), String> {
    // First, because it may fail: a connection would be opened in vain.
    let request = server.request(method, body).await?;
    let connection = match server.connect().await? {
        Connected::Ready(connection) => connection,
        Connected::Opening(opening) => return begin_early(*opening, request, on_ready, sender).await,
    };
    // The request has the receiver.
    let _ = on_ready.send(());
    // Up means that requests can be sent, so not before the server allows the stream.
    let Ok(reserved) = timeout(RESERVE_TIMEOUT, connection.reserve()).await else {
        server.forget(&connection).await;
        return Err(format!("the server allowed no other stream within {RESERVE_TIMEOUT:?}"));
    };
    let reserved = reserved?;
    sender.send(StreamEventKind::Up);
    // The first request is there when the call begins, so that both leave in one write.
    tokio::task::yield_now().await;
    let response = reserved.send(request).await.map_err(|error| error.to_string())?;
    Ok((connection, response))
}

/// The same behind the preface of a new connection, which saves a round trip. The first request counts as sent when the
/// connection is READY: the timers of its resources start then (gRFC A57).
async fn begin_early(
    opening: OpeningConnection,
    request: Request<RequestStream>,
    on_ready: oneshot::Sender<()>,
    sender: &EventSender,
) -> Result<(Arc<ServerConnection>, Response<Body>), String> {
    sender.send(StreamEventKind::Up);
    tokio::task::yield_now().await;
    let mut response = pin!(opening.send(request));
    let mut ready = pin!(opening.ready());
    let (early, connection) = tokio::select! {
        biased;
        // The end of the connection explains more than that of the stream.
        response = &mut response => (Some(response), ready.await?),
        connection = &mut ready => (None, connection?),
    };
    let _ = on_ready.send(());
    let response = match early {
        Some(response) => response,
        None => response.await,
    };
    Ok((connection, response.map_err(|error| error.to_string())?))
}

const ENDED: &str = "the server ended the stream";

/// The status behind the messages of an ended stream, which are skipped: the next stream delivers them again.
async fn last_words(messages: &mut grpc::MessageReader) -> End {
    let status = async {
        loop {
            match messages.next().await {
                Ok(Some(_)) => {}
                Ok(None) => return ENDED.to_owned().into(),
                Err(status) => return status.into(),
            }
        }
    };
    let end = timeout(STATUS_TIMEOUT, status).await;
    end.unwrap_or_else(|_| "the stream takes no more requests".to_owned().into())
}

/// Sends the end of a stream in any case, even if its task panics. For a stream that the core has closed, the event is
/// ignored.
struct SendDown {
    sender: EventSender,
    end: End,
}

impl Drop for SendDown {
    fn drop(&mut self) {
        let End { code, reason } = std::mem::replace(&mut self.end, String::new().into());
        self.sender.send(StreamEventKind::Down { code, reason });
    }
}

#[derive(Clone)]
struct EventSender {
    stream: StreamId,
    events: UnboundedSender<StreamEvent>,
}

impl EventSender {
    fn send(&self, kind: StreamEventKind) {
        // The driver ends before its streams only at shutdown.
        let _ = self.events.send(StreamEvent { stream: self.stream, kind });
    }
}

/// The requests of a stream as an HTTP/2 body. A request counts as sent when the body takes it, which it does once HTTP/2 has
/// room, and not before the connection is READY (gRFC A57).
///
/// A request is kept for one turn of the other tasks: the core, which sends one request at a time, often has another one
/// (an ACK, and then a new subscription), and both leave in one write.
pub(crate) struct RequestStream {
    /// With their length prefixes.
    requests: UnboundedReceiver<Bytes>,
    /// Those that leave next.
    taken: Vec<Bytes>,
    /// Whether the other tasks have had their turn. At first they have: the first request leaves with the head of the call.
    had_turn: bool,
    /// Until the connection is READY.
    ready: Option<oneshot::Receiver<()>>,
    /// The number of requests taken until then. They do not count as sent yet.
    unconfirmed: usize,
    sender: EventSender,
    /// Dropped with the body.
    _uploading: oneshot::Sender<Infallible>,
}

impl http_body::Body for RequestStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(ready) = &mut this.ready
            && let Poll::Ready(result) = Pin::new(ready).poll(cx)
        {
            this.ready = None;
            // An error: the attempt has failed, and so does the stream.
            if result.is_ok() {
                let confirmed = 0..std::mem::take(&mut this.unconfirmed);
                confirmed.for_each(|_| this.sender.send(StreamEventKind::Sent));
            }
        }
        let next = loop {
            match this.requests.poll_recv(cx) {
                Poll::Ready(Some(framed)) => {
                    match &this.ready {
                        None => this.sender.send(StreamEventKind::Sent),
                        Some(_) => this.unconfirmed += 1,
                    }
                    this.taken.push(framed);
                }
                Poll::Ready(None) => break Poll::Ready(None),
                Poll::Pending => break Poll::Pending,
            }
        };
        if this.taken.is_empty() {
            return next;
        }
        if !std::mem::take(&mut this.had_turn) {
            this.had_turn = true;
            // A task that wakes itself runs after all others that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(joined(std::mem::take(&mut this.taken))))))
    }
}

fn joined(requests: Vec<Bytes>) -> Bytes {
    match <[Bytes; 1]>::try_from(requests) {
        Ok([only]) => only,
        Err(several) => several.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body::Body as _;

    use super::*;

    /// The next frame, if there is one.
    fn next(body: &mut RequestStream) -> Option<Bytes> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            Poll::Ready(_) | Poll::Pending => None,
        }
    }

    /// The requests of a stream, with their other ends.
    struct Bed {
        body: RequestStream,
        requests: UnboundedSender<Bytes>,
        sent: UnboundedReceiver<StreamEvent>,
        _upload_end: oneshot::Receiver<Infallible>,
    }

    impl Bed {
        fn new(ready: Option<oneshot::Receiver<()>>) -> Self {
            let (requests, inbox) = unbounded_channel();
            let (events, sent) = unbounded_channel();
            let (uploading, upload_end) = oneshot::channel();
            let body = RequestStream {
                requests: inbox,
                taken: Vec::new(),
                had_turn: true,
                ready,
                unconfirmed: 0,
                sender: EventSender { stream: StreamId::default(), events },
                _uploading: uploading,
            };
            Self { body, requests, sent, _upload_end: upload_end }
        }

        fn request(&self, text: &'static str) {
            self.requests.send(Bytes::from_static(text.as_bytes())).unwrap();
        }

        /// The number of requests that count as sent since the last call.
        fn sent(&mut self) -> usize {
            let events = std::iter::from_fn(|| self.sent.try_recv().ok());
            events.filter(|event| matches!(event.kind, StreamEventKind::Sent)).count()
        }
    }

    #[test]
    fn a_request_leaves_with_those_that_follow_within_a_turn() {
        let mut bed = Bed::new(None);
        assert_eq!(next(&mut bed.body), None);
        // The first one leaves with the head of the call.
        bed.request("first ");
        assert_eq!(next(&mut bed.body).unwrap(), "first ");
        bed.request("ack ");
        assert_eq!(next(&mut bed.body), None);
        // It counts as sent, so that the core sends the next one.
        assert_eq!(bed.sent(), 2);
        bed.request("watch ");
        assert_eq!(next(&mut bed.body).unwrap(), "ack watch ");
        assert_eq!(next(&mut bed.body), None);
        assert_eq!(bed.sent(), 1);
    }

    #[test]
    fn a57_a_request_before_ready_counts_as_sent_when_the_connection_is_ready() {
        let (on_ready, ready) = oneshot::channel();
        let mut bed = Bed::new(Some(ready));
        bed.request("first ");
        assert_eq!(next(&mut bed.body).unwrap(), "first ");
        assert_eq!(next(&mut bed.body), None);
        assert_eq!(bed.sent(), 0);
        on_ready.send(()).unwrap();
        assert_eq!(next(&mut bed.body), None);
        assert_eq!(bed.sent(), 1);
        bed.request("second ");
        assert_eq!(next(&mut bed.body), None);
        assert_eq!(bed.sent(), 1);
        assert_eq!(next(&mut bed.body).unwrap(), "second ");
    }

    #[test]
    fn a57_a_request_of_a_failed_attempt_does_not_count_as_sent() {
        let (on_ready, ready) = oneshot::channel();
        let mut bed = Bed::new(Some(ready));
        bed.request("first ");
        assert_eq!(next(&mut bed.body).unwrap(), "first ");
        drop(on_ready);
        assert_eq!(next(&mut bed.body), None);
        assert_eq!(bed.sent(), 0);
    }
}
