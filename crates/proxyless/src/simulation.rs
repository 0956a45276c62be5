//! Puts channels and their xDS clients into one runtime, for the tests of this crate under paused time. Not part of the
//! API.

use std::sync::Arc;

use proxyless_transport::Connector;

use crate::client_pool::ClientPool;
use crate::clock;

/// Derives all randomness of this thread from `seed`. Call it before the runtime with paused time is built.
pub fn seed(seed: u64) {
    clock::simulate(seed);
}

/// A pool whose xDS clients are tasks of the runtime of the channel that starts them, instead of having threads of
/// their own, and reach their servers through `connector`.
#[must_use]
pub fn client_pool(connector: Arc<dyn Connector>) -> ClientPool {
    ClientPool::in_runtime(connector)
}
