//! The measures. Each runs once per round and adds its samples to the results.

mod calls;
mod failover;
mod h2load;
mod inner;
mod link;
mod memory;
mod startup;
mod streams;
mod telemetry;
mod tls;
mod updates;

pub(crate) use inner::SCALING;

use clap::ValueEnum;

use crate::field::{Contestant, Tools};
use crate::results::Results;
use crate::service::BoxError;

/// A group of measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Group {
    /// Unary calls of 32 bytes and of 64 KiB: requests per second, CPU per RPC, latency.
    Calls,
    /// Streams: ping-pong, floods in one direction, large messages.
    Streams,
    /// Large messages over a link with a delay.
    Link,
    /// Unary calls over TLS.
    Tls,
    /// Unary calls without and with metrics and traces.
    Telemetry,
    /// Picks, updates and memory from inside the process.
    Inner,
    /// A pick of each policy, from inside the process.
    Picks,
    /// The CPU time of a configuration update, from outside.
    Updates,
    /// Memory per endpoint, cluster, channel and connection.
    Memory,
    /// The time from the start to the first RPC.
    Startup,
    /// A primary that fails under load.
    Failover,
}

/// The context of a measure.
pub(crate) struct Round<'a> {
    pub(crate) tools: &'a Tools,
    pub(crate) contestants: &'a [Contestant],
    /// The round; the first is 1.
    pub(crate) number: usize,
    /// The duration of a rate measurement, in seconds.
    pub(crate) seconds: f64,
    pub(crate) results: &'a mut Results,
}

impl Group {
    pub(crate) async fn run(self, round: &mut Round<'_>) -> Result<(), BoxError> {
        match self {
            Self::Calls => calls::run(round).await,
            Self::Streams => streams::run(round).await,
            Self::Link => link::run(round).await,
            Self::Tls => tls::run(round).await,
            Self::Telemetry => telemetry::run(round).await,
            Self::Inner => inner::run(round).await,
            Self::Picks => inner::picks(round).await,
            Self::Updates => updates::run(round).await,
            Self::Memory => memory::run(round).await,
            Self::Startup => startup::run(round).await,
            Self::Failover => failover::run(round).await,
        }
    }
}

impl Round<'_> {
    /// The contestants of this list that take part. Each round begins with the next one, so that none is always the first
    /// after the servers have started.
    fn among(&self, these: &[Contestant]) -> Vec<Contestant> {
        let takes_part = |contestant: &Contestant| self.contestants.contains(contestant);
        let mut these: Vec<_> = these.iter().copied().filter(takes_part).collect();
        let turns = (self.number - 1) % these.len().max(1);
        these.rotate_left(turns);
        these
    }

    /// Records a failure of one contestant; the others continue.
    fn failed(&mut self, what: &str, contestant: Contestant, error: &BoxError) {
        let text = format!("{what}: {contestant}: {error}");
        tracing::warn!("{text}");
        self.results.fail(&text);
    }
}
