//! Panics of drivers: bugs, in proxyless or in what the program plugs into it. They are logged, and end no more than
//! they must.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs a driver to its end, or to its panic. Whatever the driver holds is dropped before this returns.
pub(super) async fn guard(who: &'static str, driver: impl Future<Output = ()>) {
    let panicked = {
        let mut driver = pin!(driver);
        std::future::poll_fn(|cx| {
            // A driver that panicked is not polled again, only dropped.
            match catch_unwind(AssertUnwindSafe(|| driver.as_mut().poll(cx))) {
                Ok(poll) => poll.map(|()| false),
                Err(_) => Poll::Ready(true),
            }
        })
        .await
    };
    if panicked {
        tracing::error!(target: "channel", who, "a task panicked; this is a bug");
    }
}
