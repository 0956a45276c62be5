//! Containment of panics in futures; that of plain calls is in [`proxyless_sans_io::panics`].

use std::future::poll_fn;
use std::task::Poll;

pub use proxyless_sans_io::panics::{Panicked, contain};

/// Runs a future to its end, or to its panic. One that panicked is not polled again. It is boxed, so that a task that
/// runs it does not contain it more than once, and no longer than it runs.
///
/// # Errors
/// The panic.
pub fn catch<F: Future>(future: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    let mut future = Box::pin(future);
    poll_fn(move |cx| match contain(|| future.as_mut().poll(cx)) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_told_by_its_message() {
        async fn late() -> u8 {
            tokio::task::yield_now().await;
            panic!("one")
        }
        assert_eq!(catch(async { 1 }).await, Ok(1));
        assert_eq!(catch(late()).await.map_err(|caught| caught.to_string()), Err("one".to_owned()));
    }
}
