//! The streams of one client to one method of its management servers: one task per stream, raw bytes in and out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use proxyless_sans_io::values::Code;
use proxyless_transport::grpc;
use proxyless_transport::panics::catch;
use proxyless_xds::StreamId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tracing::debug;

use super::panics;
use crate::drive::management_server::ManagementServer;
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
    /// The connection is established and the call starts.
    Up,
    /// HTTP/2 has taken a request.
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
        let body = RequestStream {
            requests: request_inbox,
            taken: Vec::new(),
            had_turn: true,
            sender: sender.clone(),
            _uploading: uploading,
        };
        let (server, method) = (server.clone(), self.method);
        let gate = Reads { permits: read_inbox, upload_end, max_message: self.max_message };
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
    let connection = match server.connect().await {
        Ok(connection) => connection,
        Err(reason) => return reason.into(),
    };
    let request = match server.request(method, body).await {
        Ok(request) => request,
        Err(reason) => return reason.into(),
    };
    // Up means that requests can be sent, so not before the server allows the stream.
    let reserved = match timeout(RESERVE_TIMEOUT, connection.reserve()).await {
        Ok(Ok(reserved)) => reserved,
        Ok(Err(reason)) => return reason.into(),
        Err(_) => {
            server.forget(&connection).await;
            return format!("the server allowed no other stream within {RESERVE_TIMEOUT:?}").into();
        }
    };
    sender.send(StreamEventKind::Up);
    // The first request is there when the call begins, so that both leave in one write.
    tokio::task::yield_now().await;
    let response = match reserved.send(request).await {
        Ok(response) => response,
        Err(error) => return error.to_string().into(),
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

/// The requests of a stream as an HTTP/2 body. A request counts as sent when HTTP/2 takes it (gRFC A57).
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
    sender: EventSender,
    /// Dropped with the body.
    _uploading: oneshot::Sender<Infallible>,
}

impl Body for RequestStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let next = loop {
            match this.requests.poll_recv(cx) {
                Poll::Ready(Some(framed)) => {
                    this.sender.send(StreamEventKind::Sent);
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

    use super::*;

    /// The next frame, if there is one.
    fn next(body: &mut RequestStream) -> Option<Bytes> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            Poll::Ready(_) | Poll::Pending => None,
        }
    }

    #[test]
    fn a_request_leaves_with_those_that_follow_within_a_turn() {
        let (requests, inbox) = unbounded_channel();
        let (events, mut sent) = unbounded_channel();
        let (uploading, _upload_end) = oneshot::channel();
        let mut body = RequestStream {
            requests: inbox,
            taken: Vec::new(),
            had_turn: true,
            sender: EventSender { stream: StreamId::default(), events },
            _uploading: uploading,
        };
        let request = |text: &'static str| requests.send(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(next(&mut body), None);
        // The first one leaves with the head of the call.
        request("first ");
        assert_eq!(next(&mut body).unwrap(), "first ");
        request("ack ");
        assert_eq!(next(&mut body), None);
        // It counts as sent, so that the core sends the next one.
        assert_eq!(sent.len(), 2);
        request("watch ");
        assert_eq!(next(&mut body).unwrap(), "ack watch ");
        assert_eq!(next(&mut body), None);
        while let Ok(event) = sent.try_recv() {
            assert!(matches!(event.kind, StreamEventKind::Sent));
        }
    }
}
