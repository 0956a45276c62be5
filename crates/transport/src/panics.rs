//! Containment of panics.
//!
//! This holds where panics unwind. With `panic = "abort"`, or when a destructor panics while another panic unwinds,
//! Rust ends the process and nothing here runs.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// A panic that was caught. It is shown as its message; its location is known only to the panic hook of the program,
/// which has already run (the default hook prints both).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        /// It becomes part of statuses, which are headers.
        const LONGEST: usize = 500;
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("without a message").chars().take(LONGEST).collect())
    }
}

/// Runs a future to its end, or to its panic. One that panicked is not polled again.
///
/// # Errors
/// The panic.
pub async fn catch<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| match contain(|| future.as_mut().poll(cx)) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Calls `f` and catches its panic. The caller must drop state that `f` may have left inconsistent.
///
/// # Errors
/// The panic.
pub fn contain<T>(f: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Panicked::new(&*payload))
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
        let caught = |text: &str| Err::<u8, _>(Panicked(text.to_owned()));
        assert_eq!(catch(async { 1 }).await, Ok(1));
        assert_eq!(catch(late()).await, caught("one"));
        assert_eq!(contain(|| panic!("number {}", 2)), caught("number 2"));
        assert_eq!(contain(|| std::panic::panic_any(3)), caught("without a message"));
        assert_eq!(contain(|| panic!("{}", "x".repeat(1 << 20))), caught(&"x".repeat(500)));
    }
}
