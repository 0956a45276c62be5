//! How many connections an entry may have, and when it attempts another one (gRFC A105).
//!
//! Inputs: the limits of the owners, the reports of calls that wait for a stream. Outputs: attempts, and requests for such
//! reports.

use std::sync::Arc;

use proxyless_sans_io::{Rng, Time};

use super::{Pool, PoolEntry, Start};
use crate::api::{ConnectionLimit, HandleId};
use crate::subchannel::Attempt;
use crate::tree::{AttemptId, SubchannelId, TreeEffect};

/// An owner of an entry.
pub(super) struct Owner {
    pub(super) id: HandleId,
    pub(super) connection_limit: Option<ConnectionLimit>,
}

impl PoolEntry {
    /// A105-05: the largest limit of all owners; A105-04: at most `cap`.
    pub(super) fn max_connections(&self, cap: u32) -> u32 {
        let limits = self.owners.iter().filter_map(|owner| owner.connection_limit.as_ref());
        limits.map(ConnectionLimit::value).max().unwrap_or(1).min(cap).max(1)
    }
}

impl Pool {
    /// The limits of owners were changed. A105-08: no connection is closed, but more may be needed.
    pub(crate) fn limits_changed(&mut self) {
        let is_limited =
            |owner: &Owner| owner.connection_limit.as_ref().is_some_and(|limit| limit.value() > 1);
        let may_scale = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.demand.is_some() || entry.owners.iter().any(is_limited));
        self.scaling.extend(may_scale.map(|(&subchannel, _)| subchannel));
    }

    /// Takes the reports of calls that have begun to wait for a stream.
    pub(crate) fn on_demand(&mut self) {
        self.scaling.extend(std::iter::from_fn(|| self.demands.next()));
    }

    /// A105-07: starts an attempt for another connection if calls wait for a stream and there may be one more.
    pub(super) fn scale(&mut self, now: Time, subchannel: SubchannelId, rng: &mut Rng) {
        let Some(entry) = self.entries.get_mut(&subchannel) else { return };
        let max_connections = entry.max_connections(self.config.connections_per_subchannel_cap);
        if max_connections > 1 && entry.demand.is_none() {
            let demand = self.demands.demand(subchannel);
            entry.demand = Some(Arc::clone(&demand));
            // Attempts that begin later carry it.
            let begun = match entry.core.attempt() {
                Attempt::Connecting { attempt, .. } => !self.starting.contains_key(attempt),
                Attempt::None { .. } | Attempt::Backoff { .. } => false,
            };
            if begun || entry.core.is_ready() {
                self.effects.push_back(TreeEffect::ReportDemand { subchannel, demand });
            }
        }
        let Some(demand) = &entry.demand else { return };
        if entry.owners.is_empty() || !entry.core.can_scale(max_connections) {
            return demand.ignore();
        }
        if demand.watch() {
            let attempt = AttemptId(self.next_attempt);
            self.next_attempt += 1;
            let started = entry.core.start(now, attempt, self.config.connect_timeout, rng);
            self.starting.insert(attempt, Start { subchannel, started });
        }
    }
}
