//! Options of single RPCs, set as request extensions (which tonic passes on).

/// Makes an RPC wait for a usable connection instead of failing fast.
///
/// ```
/// use proxyless::WaitForReady;
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(WaitForReady);
/// ```
///
/// Without it an RPC fails with UNAVAILABLE as soon as the channel knows that it cannot be sent; with it the RPC waits,
/// until its deadline if it has one. A dropped RPC (overload, circuit breaker) fails in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitForReady;
