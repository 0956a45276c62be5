//! A request body that can be sent more than once.
//!
//! Requests that no server processed are retried transparently. The transport loses the body of some of them, so it is
//! kept here. A unary request is complete at its first poll; every attempt gets a reference to it, whatever its size.
//! Any other body is shared: an attempt reads it through a [`RequestBody`], and what it reads is buffered up to a
//! limit, until the response starts. Retry policies are bound by that limit for all bodies.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::messages::MessageCounter;
use super::traces::AttemptTraces;

/// The default limit of the buffer, as in gRPC's other libraries.
pub(crate) const DEFAULT_LIMIT: usize = 256 * 1024;

/// A request's body, for all attempts.
pub(crate) struct Replay {
    kind: Kind,
    limit: usize,
}

enum Kind {
    Unread(tonic::body::Body),
    /// The complete body, in at most one frame.
    Whole(Option<Bytes>),
    Shared(Arc<Mutex<State>>),
}

/// The source of a body, with the frames read from it.
struct State {
    /// Moves to the reader that is the last one.
    source: Source,
    /// Read from the source, but not by an attempt yet.
    ahead: Option<Result<Frame<Bytes>, Status>>,
    /// Frames read, while they may be needed again.
    read: Vec<Bytes>,
    size: usize,
    limit: usize,
    replayable: bool,
    /// The error of the source.
    error: Option<Status>,
    /// The attempt that may read; an earlier one that the transport still holds gets nothing more.
    attempt: u32,
}

/// The caller's body.
#[derive(Default)]
struct Source {
    body: tonic::body::Body,
    /// It has ended. Polling it again may panic.
    ended: bool,
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }
}

impl Replay {
    /// Buffers up to `limit` bytes.
    pub(crate) fn new(source: tonic::body::Body, limit: usize) -> Self {
        Self { kind: Kind::Unread(source), limit }
    }

    /// The body for another attempt, to be sent at once; `None` if too much was read to start again.
    pub(crate) async fn attempt(&mut self) -> Option<RequestBody> {
        if let Kind::Unread(source) = &mut self.kind {
            self.kind = Kind::read(std::mem::take(source), self.limit).await;
        }
        let shared = match &self.kind {
            Kind::Unread(_) => return None,
            Kind::Whole(data) => return Some(RequestBody(Attempt::Whole(data.clone()))),
            Kind::Shared(shared) => shared,
        };
        let mut state = lock(shared);
        state.attempt += 1;
        let body =
            Reader { state: Arc::clone(shared), own: None, attempt: state.attempt, position: 0, sent: None };
        state.replayable.then_some(RequestBody(Attempt::Reads(body)))
    }

    /// Whether a retry policy may send the body again (A6: not if it exceeds the buffer).
    pub(crate) fn is_replayable(&self) -> bool {
        match &self.kind {
            Kind::Unread(_) => true,
            Kind::Whole(data) => data.as_ref().is_none_or(|data| data.len() <= self.limit),
            Kind::Shared(state) => {
                let state = lock(state);
                state.replayable && state.size <= state.limit
            }
        }
    }

    /// The error of the caller's own body, if any: a message that is too long, for example.
    pub(crate) fn error(&self) -> Option<Status> {
        match &self.kind {
            Kind::Unread(_) | Kind::Whole(_) => None,
            Kind::Shared(state) => lock(state).error.clone(),
        }
    }

    /// The response has started: nothing will be sent again.
    pub(crate) fn commit(&self) {
        if let Kind::Shared(state) = &self.kind {
            lock(state).replayable = false;
        }
    }
}

impl Kind {
    /// Reads the frames that the source has ready.
    async fn read(mut source: tonic::body::Body, limit: usize) -> Self {
        let mut poll = async || poll_fn(|cx| Poll::Ready(Pin::new(&mut source).poll_frame(cx))).await;
        let (first, ahead) = match poll().await {
            Poll::Ready(None) => return Self::Whole(None),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => match poll().await {
                    Poll::Ready(None) => return Self::Whole(Some(data)),
                    Poll::Ready(ahead) => (Some(data), ahead),
                    Poll::Pending => (Some(data), None),
                },
                Err(frame) => (None, Some(Ok(frame))),
            },
            Poll::Ready(error) => (None, error),
            Poll::Pending => (None, None),
        };
        Self::Shared(Arc::new(Mutex::new(State {
            source: Source { body: source, ended: false },
            ahead,
            size: first.as_ref().map_or(0, Bytes::len),
            limit,
            read: first.into_iter().collect(),
            replayable: true,
            error: None,
            attempt: 0,
        })))
    }
}

/// The body of one attempt.
pub(crate) struct RequestBody(Attempt);

enum Attempt {
    Whole(Option<Bytes>),
    Reads(Reader),
}

struct Reader {
    state: Arc<Mutex<State>>,
    /// The source, once no other attempt can need it: a long stream takes no lock for each message.
    own: Option<Source>,
    attempt: u32,
    position: usize,
    sent: Option<Box<SentCounter>>,
}

/// Observes the bytes that an attempt reads, for its metrics and traces.
struct SentCounter {
    messages: MessageCounter,
    total: Arc<AtomicU64>,
    traces: AttemptTraces,
}

impl RequestBody {
    /// The data of a complete body.
    pub(super) fn whole_data(&self) -> Option<&[u8]> {
        match &self.0 {
            Attempt::Whole(data) => Some(data.as_deref().unwrap_or_default()),
            Attempt::Reads(_) => None,
        }
    }

    /// Counts and traces the messages that are read of an incomplete body.
    pub(super) fn count_into(&mut self, total: Arc<AtomicU64>, traces: AttemptTraces) {
        if let Attempt::Reads(reader) = &mut self.0 {
            let messages = MessageCounter::default();
            reader.sent = Some(Box::new(SentCounter { messages, total, traces }));
        }
    }

    /// A complete body, which is sent once.
    pub(crate) fn whole(data: Bytes) -> Self {
        Self(Attempt::Whole(Some(data)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match &mut self.0 {
            Attempt::Whole(data) => Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
            Attempt::Reads(reader) => {
                let polled = reader.poll_frame(cx);
                if let (Some(sent), Poll::Ready(Some(Ok(frame)))) = (&mut reader.sent, &polled)
                    && let Some(data) = frame.data_ref()
                {
                    sent.messages.feed(data, |message| sent.traces.sent(message));
                    sent.total.store(sent.messages.bytes(), Ordering::Relaxed);
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Attempt::Whole(data) => data.is_none(),
            Attempt::Reads(reader) => reader.is_end_stream(),
        }
    }

    /// Unknown: gRPC requests have no `content-length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Reader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(own) = &mut self.own else { return self.poll_shared(cx) };
        let frame = ready!(own.poll_frame(cx));
        if let Some(Err(error)) = &frame {
            lock(&self.state).error = Some(error.clone());
        }
        Poll::Ready(frame)
    }

    fn poll_shared(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut state = lock(&self.state);
        if state.attempt != self.attempt {
            // A clean end would make a truncated request look complete.
            return Poll::Ready(Some(Err(Status::cancelled("the request is being sent elsewhere"))));
        }
        if let Some(data) = state.read.get(self.position) {
            self.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        let frame = match state.ahead.take() {
            Some(frame) => Some(frame),
            // This attempt has caught up with the buffer, which is not needed any further.
            None if !state.replayable => {
                state.read = Vec::new();
                self.position = 0;
                self.own = Some(std::mem::take(&mut state.source));
                drop(state);
                return self.poll_frame(cx);
            }
            None => ready!(state.source.poll_frame(cx)),
        };
        match frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            Some(Ok(Some(data))) if state.replayable && state.size + data.len() <= state.limit => {
                state.size += data.len();
                state.read.push(data.clone());
                self.position += 1;
            }
            Some(Ok(_)) => state.replayable = false,
            Some(Err(error)) => {
                state.replayable = false;
                state.error = Some(error.clone());
            }
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        if let Some(own) = &self.own {
            return own.is_end_stream();
        }
        let state = lock(&self.state);
        // An earlier attempt must not take the request for complete, see `poll_shared`.
        state.attempt == self.attempt
            && self.position >= state.read.len()
            && state.ahead.is_none()
            && state.source.is_end_stream()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // The lock is held by one attempt at a time and never across an await; a panic of the user's own body inside it
    // leaves the state usable.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    const LIMIT: usize = 1000;

    fn body(chunks: Vec<Bytes>) -> tonic::body::Body {
        let frames = chunks.into_iter().map(|chunk| Ok::<_, Status>(Frame::data(chunk)));
        tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_body_of_one_frame_is_whole_and_ends_with_it() {
        let mut replay = Replay::new(body(vec!["ab".into()]), LIMIT);
        for _ in 0..2 {
            let mut attempt = replay.attempt().await.unwrap();
            assert!(matches!(attempt.0, Attempt::Whole(Some(_))));
            assert!(!attempt.is_end_stream());
            assert_eq!(attempt.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
            assert!(attempt.is_end_stream(), "an empty frame would follow");
            assert!(attempt.frame().await.is_none());
        }
        let mut none = Replay::new(tonic::body::Body::empty(), LIMIT);
        assert!(none.attempt().await.unwrap().is_end_stream());
    }

    #[tokio::test]
    async fn a_body_that_has_nothing_yet_is_read_when_it_has() {
        let (frames, source) = tokio::sync::mpsc::unbounded_channel::<Result<_, Status>>();
        let source = StreamBody::new(tokio_stream::wrappers::UnboundedReceiverStream::new(source));
        let mut replay = Replay::new(tonic::body::Body::new(source), LIMIT);
        let first = replay.attempt().await.unwrap();
        assert!(!first.is_end_stream());
        for text in ["ab", "cd"] {
            frames.send(Ok(Frame::data(text.into()))).unwrap();
        }
        drop(frames);
        assert_eq!(first.collect().await.unwrap().to_bytes(), "abcd");
        assert_eq!(replay.attempt().await.unwrap().collect().await.unwrap().to_bytes(), "abcd");
    }

    #[tokio::test]
    async fn a_second_attempt_reads_the_same_bytes() {
        let mut replay = Replay::new(body(vec!["ab".into(), "cd".into(), "ef".into()]), LIMIT);
        let mut first = replay.attempt().await.unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(replay.attempt().await.unwrap().collect().await.unwrap().to_bytes(), "abcdef");
        assert!(
            first.frame().await.unwrap().is_err(),
            "an old attempt goes on reading, or ends as if it were whole"
        );
    }

    #[tokio::test]
    async fn an_error_of_the_source_is_kept_and_ends_it() {
        let frames = [Ok(Frame::data("ab".into())), Err(Status::out_of_range("too long"))];
        let mut replay =
            Replay::new(tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames))), LIMIT);
        let mut first = replay.attempt().await.unwrap();
        first.frame().await.unwrap().unwrap();
        assert!(replay.error().is_none() && replay.is_replayable());
        first.frame().await.unwrap().unwrap_err();
        assert_eq!(replay.error().unwrap().message(), "too long");
        assert!(replay.attempt().await.is_none());
    }

    /// As streams may, it panics if it is polled after its end.
    struct Strict(Vec<&'static str>, bool);

    impl Body for Strict {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let next = self.0.pop();
            assert!(!std::mem::replace(&mut self.1, next.is_none()), "read after its end");
            Poll::Ready(next.map(|text| Ok(Frame::data(text.into()))))
        }
    }

    #[tokio::test]
    async fn a_source_that_has_ended_is_not_read_on() {
        let mut replay = Replay::new(tonic::body::Body::new(Strict(vec!["cd", "ab"], false)), LIMIT);
        for _ in 0..3 {
            assert_eq!(replay.attempt().await.unwrap().collect().await.unwrap().to_bytes(), "abcd");
        }
    }

    #[tokio::test]
    async fn a_committed_body_goes_on_but_not_again() {
        let mut replay = Replay::new(body(vec!["ab".into(), "cd".into()]), LIMIT);
        let mut first = replay.attempt().await.unwrap();
        first.frame().await.unwrap().unwrap();
        replay.commit();
        assert_eq!(first.collect().await.unwrap().to_bytes(), "cd");
        assert!(replay.attempt().await.is_none());
    }

    #[tokio::test]
    async fn a6_unary_bodies_of_any_size_are_kept_but_policies_do_not_retry_large_ones() {
        for (size, is_replayable) in [(LIMIT, true), (LIMIT + 1, false), (100 * LIMIT, false)] {
            let data = Bytes::from(vec![0; size]);
            let full = Full::new(data.clone()).map_err(|never| match never {});
            let mut replay = Replay::new(tonic::body::Body::new(full), LIMIT);
            for _ in 0..3 {
                let mut attempt = replay.attempt().await.unwrap();
                let sent = attempt.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!((sent.len(), sent.as_ptr()), (size, data.as_ptr()), "is a copy");
                assert!(attempt.frame().await.is_none());
            }
            assert_eq!(replay.is_replayable(), is_replayable, "{size}");
        }
    }

    #[tokio::test]
    async fn a6_a_streaming_body_is_remembered_up_to_the_limit() {
        let half = || Bytes::from(vec![0; LIMIT / 2]);
        for (chunks, is_remembered) in
            [(vec![half(), half()], true), (vec![half(), half(), "x".into()], false)]
        {
            let size = chunks.iter().map(Bytes::len).sum::<usize>();
            let mut replay = Replay::new(body(chunks), LIMIT);
            let first = replay.attempt().await.unwrap();
            assert_eq!(first.collect().await.unwrap().to_bytes().len(), size);
            assert_eq!(replay.is_replayable(), is_remembered);
            assert_eq!(replay.attempt().await.is_some(), is_remembered);
        }
        let first_is_larger = vec![Bytes::from(vec![0; LIMIT + 1]), "x".into()];
        let mut replay = Replay::new(body(first_is_larger), LIMIT);
        assert_eq!(replay.attempt().await.unwrap().collect().await.unwrap().to_bytes().len(), LIMIT + 2);
        assert!(replay.attempt().await.is_none());
    }
}
