//! All names of a channel.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use proxyless_sans_io::{Rng, Time};

use super::schedule::{DnsSchedule, Due};
use super::{DnsAnswer, DnsConfig, QueryId, literal};
use crate::dependency_manager::DnsName;

/// An action or a result of the scheduler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DnsOutput {
    /// Run a query.
    Query { query: QueryId, name: DnsName },
    /// Cancel a query.
    Cancel { query: QueryId },
    /// The addresses of a name, or the error.
    Result { name: DnsName, result: Result<Vec<SocketAddr>, String> },
}

/// The schedules of all names. The caller drains [`DnsScheduler::poll`] after each call.
#[derive(Debug)]
pub(crate) struct DnsScheduler {
    config: DnsConfig,
    names: BTreeMap<DnsName, DnsSchedule>,
    /// The names of queries in flight.
    queries: BTreeMap<QueryId, DnsName>,
    next_query: u64,
    rng: Rng,
    outputs: VecDeque<DnsOutput>,
}

impl DnsScheduler {
    pub(crate) fn new(config: DnsConfig, seed: u64) -> Self {
        Self {
            config,
            names: BTreeMap::new(),
            queries: BTreeMap::new(),
            next_query: 0,
            rng: Rng::new(seed),
            outputs: VecDeque::new(),
        }
    }

    /// A37-29: starts to resolve the name.
    pub(crate) fn start(&mut self, now: Time, name: DnsName) {
        let schedule = match literal::addresses(&name) {
            Some(addresses) => {
                self.outputs.push_back(DnsOutput::Result { name: name.clone(), result: Ok(addresses) });
                DnsSchedule::fixed(&self.config)
            }
            None => {
                let query = self.query(&name);
                DnsSchedule::new(&self.config, now, query)
            }
        };
        self.names.insert(name, schedule);
    }

    /// Stops resolving the name.
    pub(crate) fn stop(&mut self, name: &DnsName) {
        if let Some(query) = self.names.remove(name).and_then(|schedule| schedule.query()) {
            self.queries.remove(&query);
            self.outputs.push_back(DnsOutput::Cancel { query });
        }
    }

    /// A37-34, A74: a policy requests re-resolution, of all names.
    pub(crate) fn request(&mut self, now: Time) {
        self.names.values_mut().for_each(|schedule| schedule.request(&self.config, now));
        self.tick(now);
    }

    /// Starts everything that waits for a backoff or the minimum interval.
    pub(crate) fn reset_backoff(&mut self, now: Time) {
        self.names.values_mut().for_each(|schedule| schedule.hurry(now));
        self.tick(now);
    }

    /// Handles the answer of a query. Answers of cancelled queries are ignored.
    pub(crate) fn answer(&mut self, now: Time, query: QueryId, result: Result<DnsAnswer, String>) {
        let Some(name) = self.queries.remove(&query) else { return };
        let Some(schedule) = self.names.get_mut(&name) else { return };
        let result = match result {
            Ok(DnsAnswer { addresses, ttl }) if !addresses.is_empty() => {
                schedule.succeeded(&self.config, now, ttl);
                Ok(addresses)
            }
            failure => {
                schedule.failed(now, &mut self.rng);
                Err(failure.err().unwrap_or_else(|| "no addresses found".to_owned()))
            }
        };
        self.outputs.push_back(DnsOutput::Result { name, result });
    }

    /// Advances time.
    pub(crate) fn tick(&mut self, now: Time) {
        let due = self.names.iter().map(|(name, schedule)| (name, schedule.due(now)));
        let due: Vec<_> = due
            .filter(|(_, due)| !matches!(due, Due::Nothing))
            .map(|(name, due)| (name.clone(), due))
            .collect();
        for (name, due) in due {
            match due {
                Due::Nothing => {}
                Due::Query => {
                    let query = self.query(&name);
                    if let Some(schedule) = self.names.get_mut(&name) {
                        schedule.begin(&self.config, now, query);
                    }
                }
                Due::TimedOut { query } => {
                    self.outputs.push_back(DnsOutput::Cancel { query });
                    let waited = self.config.query_timeout;
                    self.answer(now, query, Err(format!("no answer within {waited:?}")));
                }
            }
        }
    }

    /// Returns the next action or result.
    pub(crate) fn poll(&mut self) -> Option<DnsOutput> {
        self.outputs.pop_front()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &DnsName> {
        self.names.keys()
    }

    /// The time at which [`DnsScheduler::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.names.values().filter_map(DnsSchedule::deadline).min()
    }

    fn query(&mut self, name: &DnsName) -> QueryId {
        self.next_query += 1;
        let query = QueryId(self.next_query);
        self.queries.insert(query, name.clone());
        self.outputs.push_back(DnsOutput::Query { query, name: name.clone() });
        query
    }
}
