//! A request body that can be sent again, as long as little of it has been read.
//!
//! Requests that no server processed are retried transparently. hyper loses the body of some of them, so the source
//! stays here: an attempt reads it through a [`RequestBody`], and what it reads is remembered up to a cap, until the
//! response begins.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

/// How much is remembered. More than a typical unary request, little enough to forget.
const CAP: usize = 64 * 1024;

/// The source of a request's body, with what was read from it.
pub(crate) struct Replay(Arc<Mutex<State>>);

struct State {
    source: tonic::body::Body,
    /// Frames already read, while they may be needed again.
    read: Vec<Bytes>,
    size: usize,
    replayable: bool,
    /// What the source failed with.
    error: Option<Status>,
    /// The attempt that may read; an earlier one that hyper still holds gets nothing more.
    attempt: u32,
}

impl Replay {
    pub(crate) fn new(source: tonic::body::Body) -> Self {
        let state = State { source, read: Vec::new(), size: 0, replayable: true, error: None, attempt: 0 };
        Self(Arc::new(Mutex::new(state)))
    }

    /// The body for one more attempt; `None` if too much was read to begin again.
    pub(crate) fn attempt(&self) -> Option<RequestBody> {
        let mut state = lock(&self.0);
        state.attempt += 1;
        state.replayable.then(|| RequestBody {
            state: Arc::clone(&self.0),
            attempt: state.attempt,
            position: 0,
        })
    }

    /// Whether the body can still be sent again.
    pub(crate) fn is_replayable(&self) -> bool {
        lock(&self.0).replayable
    }

    /// What the caller's own body failed with, if it did: a message that is too long, for example.
    pub(crate) fn error(&self) -> Option<Status> {
        lock(&self.0).error.clone()
    }

    /// The response has begun: nothing will be sent again.
    pub(crate) fn commit(&self) {
        lock(&self.0).replayable = false;
    }
}

/// The body of one attempt.
pub(crate) struct RequestBody {
    state: Arc<Mutex<State>>,
    attempt: u32,
    position: usize,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let mut state = lock(&this.state);
        if state.attempt != this.attempt {
            // A clean end would make a truncated request look like a whole one.
            return Poll::Ready(Some(Err(Status::cancelled("the request is being sent elsewhere"))));
        }
        if let Some(data) = state.read.get(this.position) {
            this.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        // The running attempt has caught up with what was read: from here on nothing else needs it.
        if !state.replayable {
            state.read = Vec::new();
            this.position = 0;
        }
        let frame = std::task::ready!(Pin::new(&mut state.source).poll_frame(cx));
        match frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            Some(Ok(Some(data))) if state.replayable && state.size + data.len() <= CAP => {
                state.size += data.len();
                state.read.push(data.clone());
                this.position += 1;
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
        let state = lock(&self.state);
        self.position >= state.read.len() && state.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
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

    fn body(chunks: Vec<Bytes>) -> tonic::body::Body {
        let frames = chunks.into_iter().map(|chunk| Ok::<_, Status>(Frame::data(chunk)));
        tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames)))
    }

    #[tokio::test]
    async fn a_second_attempt_reads_the_same_bytes() {
        let replay = Replay::new(body(vec!["ab".into(), "cd".into(), "ef".into()]));
        let mut first = replay.attempt().unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(replay.attempt().unwrap().collect().await.unwrap().to_bytes(), "abcdef");
        assert!(
            first.frame().await.unwrap().is_err(),
            "an old attempt goes on reading, or ends as if it were whole"
        );
    }

    #[tokio::test]
    async fn an_error_of_the_source_is_kept_and_ends_it() {
        let frames = [Ok(Frame::data("ab".into())), Err(Status::out_of_range("too long"))];
        let replay = Replay::new(tonic::body::Body::new(StreamBody::new(tokio_stream::iter(frames))));
        let mut first = replay.attempt().unwrap();
        first.frame().await.unwrap().unwrap();
        assert!(replay.error().is_none() && replay.is_replayable());
        first.frame().await.unwrap().unwrap_err();
        assert_eq!(replay.error().unwrap().message(), "too long");
        assert!(replay.attempt().is_none());
    }

    #[tokio::test]
    async fn a_committed_body_goes_on_but_not_again() {
        let replay = Replay::new(body(vec!["ab".into(), "cd".into()]));
        let mut first = replay.attempt().unwrap();
        first.frame().await.unwrap().unwrap();
        replay.commit();
        assert_eq!(first.collect().await.unwrap().to_bytes(), "cd");
        assert!(replay.attempt().is_none());
    }

    #[tokio::test]
    async fn beyond_the_cap_nothing_is_remembered() {
        let big = Bytes::from(vec![0; CAP + 1]);
        let replay = Replay::new(tonic::body::Body::new(Full::new(big).map_err(|never| match never {})));
        let mut first = replay.attempt().unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap().len(), CAP + 1);
        assert!(replay.attempt().is_none());
    }
}
