//! The load reporting server: requests reports, checks them and sums them up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterStats, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf::Duration as WireDuration;
use prost::Message as _;
use proxyless_sans_io::Time;

use crate::laws::invariants::Violation;
use crate::laws::ledger::{Account, Ledger, Load, Sums};

/// The minimum interval of reports, regardless of the server.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The request of a load reporting server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReportRequest {
    /// The interval of reports.
    pub(crate) interval: Duration,
    /// The clusters; `None` means all.
    pub(crate) clusters: Option<Vec<String>>,
}

impl Default for LoadReportRequest {
    fn default() -> Self {
        Self { interval: Duration::from_secs(2), clusters: None }
    }
}

impl LoadReportRequest {
    fn wants(&self, cluster: &str) -> bool {
        self.clusters.as_ref().is_none_or(|names| names.iter().any(|name| name == cluster))
    }

    /// The LoadStatsResponse of this request.
    pub(crate) fn encode(&self) -> Bytes {
        let interval = WireDuration {
            seconds: i64::try_from(self.interval.as_secs()).unwrap_or(i64::MAX),
            nanos: self.interval.subsec_nanos().cast_signed(),
        };
        LoadStatsResponse {
            clusters: self.clusters.clone().unwrap_or_default(),
            send_all_clusters: self.clusters.is_none(),
            load_reporting_interval: Some(interval),
            ..Default::default()
        }
        .encode_to_vec()
        .into()
    }
}

/// The load reporting server.
#[derive(Debug, Default)]
pub(crate) struct LoadServer {
    /// Its request.
    pub(crate) request: LoadReportRequest,
    /// Whether streams fail to open.
    pub(crate) refuses: bool,
    /// The request that the client has read on this stream.
    told: Option<LoadReportRequest>,
    /// The clusters that were requested all the time, as far as the client knows; `None` means all.
    always: Option<BTreeSet<String>>,
    /// The end of the last report, or the start of the stream.
    quiet_since: Time,
    /// The time up to which the load of each cluster was reported.
    covered: BTreeMap<Account, Time>,
}

impl LoadServer {
    /// A stream begins: the client has not read a request on it.
    pub(crate) fn opened(&mut self) {
        self.told = None;
    }

    /// The client reads a response.
    pub(crate) fn told(&mut self, now: Time, bytes: Bytes) {
        let Ok(response) = LoadStatsResponse::decode(bytes) else { return };
        let interval = response.load_reporting_interval.unwrap_or_default();
        // The server's values are neither negative nor out of range.
        let interval = Duration::new(interval.seconds.unsigned_abs(), interval.nanos.unsigned_abs());
        let clusters = (!response.send_all_clusters).then_some(response.clusters);
        if let Some(names) = &clusters {
            let names: BTreeSet<String> = names.iter().cloned().collect();
            self.always = Some(match &self.always {
                None => names,
                Some(always) => always & &names,
            });
        }
        if self.told.is_none() {
            self.quiet_since = now;
        }
        self.told = Some(LoadReportRequest { interval: interval.max(MIN_INTERVAL), clusters });
    }

    /// Whether the client has read a request on this stream.
    pub(crate) fn has_told(&self) -> bool {
        self.told.is_some()
    }

    /// The client dropped load that it could not report: what it reports is not exact any more.
    pub(crate) fn given_up(&mut self) {
        self.always = Some(BTreeSet::new());
    }

    /// Whether the server has always requested a cluster, and could always be reached.
    pub(crate) fn always_wanted(&self, cluster: &str) -> bool {
        self.always.as_ref().is_none_or(|always| always.contains(cluster))
    }

    /// The client writes a report. `settled`: the core knows every store that counts.
    ///
    /// # Errors
    /// If the report is not due or is wrong.
    pub(crate) fn written(
        &mut self,
        now: Time,
        report: &LoadStatsRequest,
        ledger: &Ledger,
        settled: bool,
    ) -> Result<(), Violation> {
        let Some(request) = &self.told else {
            return Err(Violation::new("reports are sent on request only", "no request"));
        };
        Violation::unless(
            now.since(self.quiet_since) >= request.interval,
            "reports keep the interval",
            || {
                format!(
                    "{:?} after the last, {:?} was requested",
                    now.since(self.quiet_since),
                    request.interval
                )
            },
        )?;
        self.quiet_since = now;
        Violation::unless(!report.cluster_stats.is_empty(), "reports are not empty", String::new)?;
        for stats in &report.cluster_stats {
            let wanted = request.wants(&stats.cluster_name);
            Violation::unless(wanted, "only requested clusters are reported", || stats.cluster_name.clone())?;
            is_not_zero(stats)?;
            let truth = ledger.truth.get(&account(stats)).cloned().unwrap_or_default();
            for locality in &stats.upstream_locality_stats {
                let zone = locality.locality.clone().unwrap_or_default().zone;
                let truth = truth.zones.get(&zone).copied().unwrap_or_default().in_progress();
                let heard = locality.total_requests_in_progress;
                let fine = if settled { heard == truth } else { heard <= truth };
                Violation::unless(fine, "reports have the right number of calls in progress", || {
                    format!("{} of {zone}: {heard}, expected {truth}", stats.cluster_name)
                })?;
            }
        }
        Ok(())
    }

    /// HTTP/2 sent a report that was written then: the server receives it.
    ///
    /// # Errors
    /// If the sums are wrong.
    pub(crate) fn pulled(
        &mut self,
        written: Time,
        report: LoadStatsRequest,
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        ledger.pulled += 1;
        for stats in report.cluster_stats {
            let account = account(&stats);
            self.cover(written, &account, &stats)?;
            let truth = ledger.truth.get(&account).cloned().unwrap_or_default();
            let heard = ledger.heard.entry(account.clone()).or_default();
            let in_progress = add(heard, stats);
            if !self.always_wanted(&account.0) {
                continue;
            }
            for (zone, sums) in &heard.zones {
                let now = in_progress.get(zone).copied().unwrap_or_default();
                let late = truth.zones.get(zone).map_or(0, |sums| sums.late);
                // Issued is succeeded plus failed plus in progress, over all reports.
                let fine = (now..=now + late).contains(&sums.in_progress())
                    && sums.issued >= sums.succeeded + sums.failed;
                Violation::unless(fine, "reports add up", || {
                    format!("{account:?}, {zone}: {sums:?} so far, {now} in progress")
                })?;
            }
        }
        Ok(())
    }

    /// No time is reported twice.
    fn cover(&mut self, end: Time, account: &Account, stats: &ClusterStats) -> Result<(), Violation> {
        let span = stats.load_report_interval.unwrap_or_default();
        let span = Duration::new(span.seconds.unsigned_abs(), span.nanos.unsigned_abs());
        let last = self.covered.insert(account.clone(), end).unwrap_or(Time::ZERO);
        let fine = !span.is_zero() && last + span <= end;
        Violation::unless(fine, "reports cover the time since the last report", || {
            format!("{account:?}: {span:?} until {end:?}, after {last:?}")
        })
    }
}

fn account(stats: &ClusterStats) -> Account {
    (stats.cluster_name.clone(), stats.cluster_service_name.clone())
}

fn is_not_zero(stats: &ClusterStats) -> Result<(), Violation> {
    let zones = stats.upstream_locality_stats.iter().all(|zone| {
        zone.total_issued_requests
            + zone.total_successful_requests
            + zone.total_error_requests
            + zone.total_requests_in_progress
            > 0
    });
    let some = !stats.upstream_locality_stats.is_empty() || stats.total_dropped_requests > 0;
    Violation::unless(zones && some, "zero load is not reported", || format!("{stats:?}"))
}

/// Adds a report to the sums; returns the calls in progress by zone.
fn add(heard: &mut Load, stats: ClusterStats) -> BTreeMap<String, u64> {
    heard.dropped += stats.total_dropped_requests;
    for dropped in stats.dropped_requests {
        *heard.categories.entry(dropped.category).or_default() += dropped.dropped_count;
    }
    let mut in_progress = BTreeMap::new();
    for locality in stats.upstream_locality_stats {
        let zone = locality.locality.unwrap_or_default().zone;
        let sums: &mut Sums = heard.zones.entry(zone.clone()).or_default();
        sums.issued += locality.total_issued_requests;
        sums.succeeded += locality.total_successful_requests;
        sums.failed += locality.total_error_requests;
        in_progress.insert(zone, locality.total_requests_in_progress);
    }
    in_progress
}

/// A request in one line.
pub(crate) fn describe(request: &LoadStatsRequest) -> String {
    let cluster = |stats: &ClusterStats| {
        let zone = |zone: &UpstreamLocalityStats| {
            let name = zone.locality.as_ref().map_or("", |locality| &locality.zone);
            format!(
                "{name:?}: {} issued, {} succeeded, {} failed, {} in progress",
                zone.total_issued_requests,
                zone.total_successful_requests,
                zone.total_error_requests,
                zone.total_requests_in_progress
            )
        };
        let zones: Vec<_> = stats.upstream_locality_stats.iter().map(zone).collect();
        let (name, dropped) = (&stats.cluster_name, stats.total_dropped_requests);
        format!("{name} {} {zones:?}, {dropped} dropped", stats.cluster_service_name)
    };
    let clusters: Vec<_> = request.cluster_stats.iter().map(cluster).collect();
    format!("{} {}", if request.node.is_some() { "node" } else { "report" }, clusters.join("; "))
}
