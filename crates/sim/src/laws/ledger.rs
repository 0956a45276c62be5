//! The ledger of load: the calls made, and the load reported.
//!
//! The store that counts a call is found from outside, by comparing the contents of all stores before and after a pick.
//! The end of the call is recorded here and compared with the reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proxyless_xds::lrs::{LoadStore, LoadView};

use crate::laws::invariants::Violation;

/// The key of a cluster in reports: its name and its EDS service name, which may be empty.
pub(crate) type Account = (String, String);

/// The cluster and locality that count a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadKey {
    /// The cluster.
    pub(crate) account: Account,
    /// The locality's zone.
    pub(crate) zone: String,
}

/// A change of the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Calls were issued.
    Issued(LoadKey),
    /// Calls were dropped, with or without a category.
    Dropped(Account, Option<String>, u64),
}

/// The load of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Calls by zone.
    pub(crate) zones: BTreeMap<String, Sums>,
    /// Drops by category.
    pub(crate) categories: BTreeMap<String, u64>,
    /// All drops.
    pub(crate) dropped: u64,
}

/// Calls of one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Calls that were sent.
    pub(crate) issued: u64,
    /// Calls that succeeded.
    pub(crate) succeeded: u64,
    /// Calls that failed, including cancelled ones.
    pub(crate) failed: u64,
    /// Calls that were found not to have been sent after a report had counted them. Reports cannot subtract them, so
    /// they may exceed the truth by this number.
    pub(crate) late: u64,
}

impl Sums {
    /// Calls that have not ended.
    pub(crate) fn in_progress(self) -> u64 {
        self.issued.saturating_sub(self.succeeded + self.failed)
    }
}

/// The calls made and the load reported.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The calls made.
    pub(crate) truth: BTreeMap<Account, Load>,
    /// The load reported, in requests that HTTP/2 sent.
    pub(crate) heard: BTreeMap<Account, Load>,
    /// Reports written.
    pub(crate) reports: u64,
    /// Reports sent.
    pub(crate) pulled: u64,
}

impl Ledger {
    /// A call is sent.
    pub(crate) fn issued(&mut self, key: &LoadKey) {
        self.zone(key).issued += 1;
    }

    /// A call succeeds.
    pub(crate) fn succeeded(&mut self, key: &LoadKey) {
        self.zone(key).succeeded += 1;
    }

    /// A call fails.
    pub(crate) fn failed(&mut self, key: &LoadKey) {
        self.zone(key).failed += 1;
    }

    /// A call was not sent after all; `reports` is the number of reports when it was issued.
    pub(crate) fn withdrawn(&mut self, key: &LoadKey, reports: u64) {
        let late = reports != self.reports;
        let sums = self.zone(key);
        sums.issued = sums.issued.saturating_sub(1);
        sums.late += u64::from(late);
    }

    /// Calls were dropped.
    pub(crate) fn dropped(&mut self, account: Account, category: Option<String>, count: u64) {
        let load = self.truth.entry(account).or_default();
        load.dropped += count;
        if let Some(category) = category {
            *load.categories.entry(category).or_default() += count;
        }
    }

    fn zone(&mut self, key: &LoadKey) -> &mut Sums {
        let load = self.truth.entry(key.account.clone()).or_default();
        load.zones.entry(key.zone.clone()).or_default()
    }

    /// The conservation law, when all calls have ended and everything is reported. `exact`: the clusters that the
    /// server always requested; for others the reports must not exceed the truth.
    ///
    /// # Errors
    /// If load was lost, invented or counted twice.
    pub(crate) fn balance(&self, exact: impl Fn(&str) -> bool) -> Result<(), Violation> {
        let accounts: BTreeSet<&Account> = self.truth.keys().chain(self.heard.keys()).collect();
        for account in accounts {
            let truth = self.truth.get(account).cloned().unwrap_or_default();
            let heard = self.heard.get(account).cloned().unwrap_or_default();
            let fine = if exact(&account.0) { heard.equals(&truth) } else { heard.is_within(&truth) };
            Violation::unless(fine, "load is conserved", || {
                format!("{account:?}: calls did {truth:?}, reports say {heard:?}")
            })?;
        }
        Ok(())
    }
}

impl Load {
    /// Whether reports equal to this match the calls.
    fn equals(&self, truth: &Self) -> bool {
        let drops = self.dropped == truth.dropped && self.categories == truth.categories;
        drops && self.zones_fit(truth, |heard, truth| heard == truth) && self.covers_issued(truth)
    }

    fn covers_issued(&self, truth: &Self) -> bool {
        truth.zones.iter().all(|(zone, truth)| {
            let heard = self.zones.get(zone).copied().unwrap_or_default();
            heard.issued >= truth.issued && heard.in_progress() <= truth.late
        })
    }

    /// Whether reports equal to this do not exceed the calls. The start of a call that ran while the server changed its
    /// request may be reported twice, so only ends count.
    fn is_within(&self, truth: &Self) -> bool {
        let categories = self
            .categories
            .iter()
            .all(|(category, &heard)| heard <= truth.categories.get(category).copied().unwrap_or_default());
        self.dropped <= truth.dropped && categories && self.ends_fit(truth, |heard, truth| heard <= truth)
    }

    fn zones_fit(&self, truth: &Self, fit: impl Fn(u64, u64) -> bool) -> bool {
        let issued = self.zones.iter().all(|(zone, heard)| {
            let truth = truth.zones.get(zone).copied().unwrap_or_default();
            heard.issued <= truth.issued + truth.late
        });
        issued && self.ends_fit(truth, fit)
    }

    fn ends_fit(&self, truth: &Self, fit: impl Fn(u64, u64) -> bool) -> bool {
        let zones: BTreeSet<&String> = self.zones.keys().chain(truth.zones.keys()).collect();
        zones.into_iter().all(|zone| {
            let heard = self.zones.get(zone).copied().unwrap_or_default();
            let truth = truth.zones.get(zone).copied().unwrap_or_default();
            fit(heard.succeeded, truth.succeeded) && fit(heard.failed, truth.failed)
        })
    }
}

/// The contents of the stores of a channel.
pub(crate) fn views(stores: &[Arc<LoadStore>]) -> Vec<LoadView> {
    stores.iter().map(|store| store.view()).collect()
}

/// The changes of the stores since `before`.
pub(crate) fn changes(stores: &[Arc<LoadStore>], before: &[LoadView]) -> Vec<Counted> {
    let mut changes = Vec::new();
    for (store, before) in stores.iter().zip(before) {
        let after = store.view();
        if after == *before {
            continue;
        }
        let service = store.eds_service_name().map_or_else(String::new, ToString::to_string);
        let account = (store.cluster().to_string(), service);
        for (locality, after) in &after.localities {
            let issued = before.localities.get(locality).map_or(0, |before| before.issued);
            for _ in issued..after.issued {
                let zone = locality.zone.clone();
                changes.push(Counted::Issued(LoadKey { account: account.clone(), zone }));
            }
        }
        for (category, &after) in &after.categories {
            let before = before.categories.get(category).copied().unwrap_or_default();
            if after > before {
                changes.push(Counted::Dropped(account.clone(), Some(category.to_string()), after - before));
            }
        }
        if after.uncategorized > before.uncategorized {
            changes.push(Counted::Dropped(account, None, after.uncategorized - before.uncategorized));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(truth: Sums, heard: Sums) -> Ledger {
        let load = |sums| Load { zones: [("z".to_owned(), sums)].into(), ..Load::default() };
        let account = ("c".to_owned(), String::new());
        Ledger {
            truth: [(account.clone(), load(truth))].into(),
            heard: [(account, load(heard))].into(),
            ..Ledger::default()
        }
    }

    const TRUTH: Sums = Sums { issued: 3, succeeded: 2, failed: 1, late: 0 };

    #[test]
    fn what_is_lost_or_counted_twice_breaks_the_law() {
        assert!(ledger(TRUTH, TRUTH).balance(|_| true).is_ok());
        let lost = Sums { issued: 2, succeeded: 1, ..TRUTH };
        let twice = Sums { issued: 4, succeeded: 3, ..TRUTH };
        let mixed_up = Sums { succeeded: 1, failed: 2, ..TRUTH };
        for heard in [lost, twice, mixed_up, Sums::default()] {
            assert!(ledger(TRUTH, heard).balance(|_| true).is_err(), "{heard:?}");
        }
        assert!(ledger(TRUTH, lost).balance(|_| false).is_ok(), "the server did not want all of it");
        assert!(ledger(TRUTH, twice).balance(|_| false).is_err());
    }

    #[test]
    fn a_call_withdrawn_after_its_report_may_stay_issued() {
        let truth = Sums { late: 1, ..TRUTH };
        assert!(ledger(truth, Sums { issued: 4, ..TRUTH }).balance(|_| true).is_ok());
        assert!(ledger(truth, Sums { issued: 5, ..TRUTH }).balance(|_| true).is_err());
    }
}
