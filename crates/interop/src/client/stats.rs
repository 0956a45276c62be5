//! The outcomes of RPCs: totals since the start, and watchers of the next few.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tonic::metadata::{KeyAndValueRef, MetadataMap};

use super::plan::Method;
use super::rpc::Outcome;
use crate::proto::load_balancer_accumulated_stats_response::MethodStats;
use crate::proto::load_balancer_stats_response::{MetadataEntry, MetadataType, RpcMetadata};
use crate::proto::{LoadBalancerAccumulatedStatsResponse, LoadBalancerStatsResponse};

#[derive(Debug, Default)]
pub(super) struct Stats(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next_number: u64,
    totals: BTreeMap<Method, Totals>,
    watchers: BTreeMap<u64, Watcher>,
    next_watcher: u64,
}

#[derive(Debug, Default)]
struct Totals {
    started: i32,
    /// Ended RPCs by status code.
    results: BTreeMap<i32, i32>,
}

impl Totals {
    fn succeeded(&self) -> i32 {
        self.results.get(&0).copied().unwrap_or(0)
    }
}

impl Stats {
    /// Counts an RPC as started and assigns it a number.
    pub(super) fn start(&self, method: Method) -> u64 {
        let mut inner = self.lock();
        inner.totals.entry(method).or_default().started += 1;
        let number = inner.next_number;
        inner.next_number += 1;
        number
    }

    /// Counts an RPC as ended. Returns whether any has succeeded so far.
    pub(super) fn finish(&self, number: u64, method: Method, outcome: &Outcome) -> bool {
        let mut inner = self.lock();
        let totals = inner.totals.entry(method).or_default();
        *totals.results.entry(outcome.status.code() as i32).or_default() += 1;
        for watcher in inner.watchers.values_mut() {
            watcher.finish(number, method, outcome);
        }
        inner.totals.values().any(|totals| totals.succeeded() > 0)
    }

    /// Watches the next `count` RPCs that start.
    pub(super) fn watch(self: &Arc<Self>, count: u64, metadata_keys: Vec<String>) -> Watch {
        let mut inner = self.lock();
        let id = inner.next_watcher;
        inner.next_watcher += 1;
        let complete = Arc::new(Notify::new());
        let watcher = Watcher {
            first: inner.next_number,
            count,
            metadata_keys: metadata_keys.into_iter().map(|key| key.to_ascii_lowercase()).collect(),
            seen: 0,
            response: LoadBalancerStatsResponse::default(),
            complete: complete.clone(),
        };
        inner.watchers.insert(id, watcher);
        Watch { stats: self.clone(), id, complete }
    }

    #[allow(deprecated)] // Older test drivers read the deprecated maps.
    pub(super) fn accumulated(&self) -> LoadBalancerAccumulatedStatsResponse {
        let mut response = LoadBalancerAccumulatedStatsResponse::default();
        let inner = self.lock();
        let none = Totals::default();
        for method in Method::ALL {
            let totals = inner.totals.get(&method).unwrap_or(&none);
            let name = method.stats_name().to_owned();
            let ended: i32 = totals.results.values().sum();
            response.num_rpcs_started_by_method.insert(name.clone(), totals.started);
            response.num_rpcs_succeeded_by_method.insert(name.clone(), totals.succeeded());
            response.num_rpcs_failed_by_method.insert(name.clone(), ended - totals.succeeded());
            let result = totals.results.iter().map(|(code, count)| (*code, *count)).collect();
            response.stats_per_method.insert(name, MethodStats { rpcs_started: totals.started, result });
        }
        response
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An observation of some RPCs; dropping it ends the observation.
#[derive(Debug)]
pub(super) struct Watch {
    stats: Arc<Stats>,
    id: u64,
    complete: Arc<Notify>,
}

impl Watch {
    /// Waits until all of the RPCs have ended.
    pub(super) async fn complete(&self) {
        self.complete.notified().await;
    }

    /// The current result; RPCs that have not ended count as failures.
    pub(super) fn response(&self) -> LoadBalancerStatsResponse {
        let inner = self.stats.lock();
        inner.watchers.get(&self.id).map(Watcher::response).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stats.lock().watchers.remove(&self.id);
    }
}

#[derive(Debug)]
struct Watcher {
    first: u64,
    count: u64,
    metadata_keys: Vec<String>,
    seen: u64,
    response: LoadBalancerStatsResponse,
    complete: Arc<Notify>,
}

impl Watcher {
    fn finish(&mut self, number: u64, method: Method, outcome: &Outcome) {
        if number < self.first || number - self.first >= self.count {
            return;
        }
        let response = &mut self.response;
        if outcome.peer.is_empty() {
            response.num_failures += 1;
        } else {
            let peer = &outcome.peer;
            *response.rpcs_by_peer.entry(peer.clone()).or_default() += 1;
            let by_method = response.rpcs_by_method.entry(method.name().to_owned()).or_default();
            *by_method.rpcs_by_peer.entry(peer.clone()).or_default() += 1;
            if !self.metadata_keys.is_empty() {
                let metadata = RpcMetadata { metadata: self.metadata(outcome) };
                let by_peer = self.response.metadatas_by_peer.entry(peer.clone()).or_default();
                by_peer.rpc_metadata.push(metadata);
            }
        }
        self.seen += 1;
        if self.seen == self.count {
            self.complete.notify_one();
        }
    }

    fn metadata(&self, outcome: &Outcome) -> Vec<MetadataEntry> {
        let initial = entries(&outcome.initial, MetadataType::Initial);
        let trailing = entries(&outcome.trailing, MetadataType::Trailing);
        let wanted = |key: &String| self.metadata_keys.iter().any(|k| k == "*" || k == key);
        initial.chain(trailing).filter(|entry| wanted(&entry.key)).collect()
    }

    fn response(&self) -> LoadBalancerStatsResponse {
        let mut response = self.response.clone();
        let missing = i32::try_from(self.count - self.seen).unwrap_or(i32::MAX);
        response.num_failures = response.num_failures.saturating_add(missing);
        response
    }
}

fn entries(metadata: &MetadataMap, kind: MetadataType) -> impl Iterator<Item = MetadataEntry> {
    metadata.iter().map(move |entry| {
        let (key, value) = match entry {
            KeyAndValueRef::Ascii(key, value) => {
                (key.as_str(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned())
            }
            KeyAndValueRef::Binary(key, value) => {
                let bytes = value.to_bytes().unwrap_or_default();
                (key.as_str(), String::from_utf8_lossy(&bytes).into_owned())
            }
        };
        MetadataEntry { key: key.to_owned(), value, r#type: kind.into() }
    })
}
