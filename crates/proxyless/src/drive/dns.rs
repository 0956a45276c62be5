//! Runs the DNS queries of a channel, each as a task. The core schedules them.

use std::collections::BTreeMap;
use std::sync::Arc;

use proxyless_mesh::channel_core::ChannelInput;
use proxyless_mesh::dns::{DnsAnswer, QueryId};
use proxyless_transport::dns::Resolve;
use proxyless_transport::panics::catch;
use tokio::task::{AbortHandle, JoinSet};

use super::panics;

/// The queries of one channel.
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolve>,
    tasks: JoinSet<(QueryId, Result<DnsAnswer, String>)>,
    running: BTreeMap<QueryId, AbortHandle>,
}

impl Lookups {
    pub(crate) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    pub(crate) fn query(&mut self, query: QueryId, host: Arc<str>, port: u16) {
        let resolver = Arc::clone(&self.resolver);
        let task = self.tasks.spawn(async move {
            // The resolver may be the program's own; also the call itself, before there is a future, may panic.
            let answer = match catch(async { resolver.resolve(&host, port).await }).await {
                Ok(Ok(found)) => Ok(DnsAnswer { addresses: found.addresses, ttl: found.ttl }),
                Ok(Err(error)) => Err(error.to_string()),
                Err(panicked) => {
                    panics::log(&format_args!("resolver of {host}"), &panicked);
                    Err(format!("the resolver panicked: {panicked}"))
                }
            };
            (query, answer)
        });
        self.running.insert(query, task);
    }

    pub(crate) fn cancel(&mut self, query: QueryId) {
        if let Some(task) = self.running.remove(&query) {
            task.abort();
        }
    }

    /// The next answer; pends while there are no queries.
    pub(crate) async fn next(&mut self) -> ChannelInput {
        loop {
            match self.tasks.join_next().await {
                Some(Ok((query, result))) => {
                    self.running.remove(&query);
                    return ChannelInput::DnsAnswer { query, result };
                }
                // A query that was cancelled.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}
