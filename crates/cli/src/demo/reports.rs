//! The load that the control plane received (LRS), compared with the client's own counts.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use proxyless::XdsChannel;
use proxyless::inspect::CallCounts;
use proxyless_testkit::LoadReport;

use super::load::Sample;
use super::mesh::{Member, Mesh};
use super::scenario::Reported;

/// The time to wait for the last report, which is sent a second after the previous one.
const PATIENCE: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reports {
    rows: Vec<Row>,
    /// The calls that ended on the client's connections.
    sent: CallCounts,
}

/// The reported load of one locality, beside the answers of its backends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    cluster: String,
    zone: String,
    heard: Heard,
    /// The RPCs that its backends answered.
    answered: u64,
}

/// The sum of all reports of a locality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    issued: u64,
    succeeded: u64,
    failed: u64,
}

impl Reports {
    /// Waits until the control plane has received the complete load after the client's RPCs have ended, or patience
    /// runs out.
    pub(super) async fn collect(
        reported: &[Reported],
        mesh: &Mesh,
        channel: &XdsChannel,
        samples: &[Sample],
    ) -> Self {
        let collected = async {
            let mut looks = tokio::time::interval(LOOK_EVERY);
            loop {
                looks.tick().await;
                let reports = Self::now(reported, mesh, channel, samples).await;
                if reports.problems().is_empty() {
                    return reports;
                }
            }
        };
        match tokio::time::timeout(PATIENCE, collected).await {
            Ok(reports) => reports,
            Err(_) => Self::now(reported, mesh, channel, samples).await,
        }
    }

    async fn now(reported: &[Reported], mesh: &Mesh, channel: &XdsChannel, samples: &[Sample]) -> Self {
        let mut heard = BTreeMap::new();
        mesh.load_reports().iter().for_each(|report| hear(report, &mut heard));
        let sent = channel.tree().await.map(|tree| tree.calls).unwrap_or_default();
        Self::new(reported, heard, sent, mesh.members(), samples)
    }

    fn new(
        reported: &[Reported],
        mut heard: BTreeMap<(String, String), Heard>,
        sent: CallCounts,
        members: &[Member],
        samples: &[Sample],
    ) -> Self {
        let mut rows = Vec::new();
        for Reported { cluster, zone, groups } in reported {
            let key = ((*cluster).to_owned(), (*zone).to_owned());
            let is_its_own =
                |sample: &&Sample| sample.group(members).is_some_and(|group| groups.contains(&group));
            let answered = samples.iter().filter(is_its_own).count() as u64;
            let heard = heard.remove(&key).unwrap_or_default();
            let (cluster, zone) = key;
            rows.push(Row { cluster, zone, heard, answered });
        }
        // Unexpected localities.
        rows.extend(heard.into_iter().map(|((cluster, zone), heard)| Row {
            cluster,
            zone,
            heard,
            answered: 0,
        }));
        Self { rows, sent }
    }

    /// The differences between the two.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for row in &self.rows {
            let (place, Heard { issued, succeeded, failed }) = (row.place(), row.heard);
            if succeeded != row.answered {
                let answered = row.answered;
                problems.push(format!(
                    "load of {place}: {answered} answers, the control plane heard of {succeeded}"
                ));
            }
            if issued < succeeded + failed {
                let ended = succeeded + failed;
                problems.push(format!(
                    "load of {place}: {ended} RPCs ended, the beginning of {issued} was heard"
                ));
            }
        }
        let failed = self.total().failed;
        if failed != self.sent.failed {
            let sent = self.sent.failed;
            problems.push(format!(
                "load: {sent} RPCs failed on connections, the control plane heard of {failed}"
            ));
        }
        problems
    }

    fn total(&self) -> Heard {
        let mut total = Heard::default();
        self.rows.iter().for_each(|row| total += row.heard);
        total
    }
}

fn hear(report: &LoadReport, into: &mut BTreeMap<(String, String), Heard>) {
    for cluster in &report.message().cluster_stats {
        for of in &cluster.upstream_locality_stats {
            let zone = of.locality.as_ref().map(|locality| locality.zone.clone()).unwrap_or_default();
            *into.entry((cluster.cluster_name.clone(), zone)).or_default() += Heard {
                issued: of.total_issued_requests,
                succeeded: of.total_successful_requests,
                failed: of.total_error_requests,
            };
        }
    }
}

impl Heard {
    /// An RPC that was reported as issued and then not sent after all cannot be taken back.
    fn not_sent(self) -> u64 {
        self.issued.saturating_sub(self.succeeded + self.failed)
    }
}

impl AddAssign for Heard {
    fn add_assign(&mut self, other: Self) {
        self.issued += other.issued;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }
}

impl Row {
    fn place(&self) -> String {
        if self.zone.is_empty() { self.cluster.clone() } else { format!("{} in {}", self.cluster, self.zone) }
    }
}

impl fmt::Display for Reports {
    /// A table, each line terminated.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |place: &str, heard: Heard, answered: u64, client_failed: &str| {
            let Heard { issued, succeeded, failed } = heard;
            let heard = format!("{place:<28} {issued:>8} {succeeded:>10} {failed:>8}");
            writeln!(f, "{}", format!("{heard}  {answered:>16} {client_failed:>8}").trim_end())
        };
        for row in &self.rows {
            line(&row.place(), row.heard, row.answered, "")?;
        }
        line("all", self.total(), self.sent.succeeded, &self.sent.failed.to_string())?;
        for row in self.rows.iter().filter(|row| row.heard.not_sent() > 0) {
            let (place, not_sent) = (row.place(), row.heard.not_sent());
            writeln!(f, "{place}: {not_sent} issued RPCs lost their connection unsent and went elsewhere")?;
        }
        Ok(())
    }
}

/// The heading of the table.
pub(super) const HEADER: &str =
    "load heard by control plane    issued  succeeded   failed  client: answered   failed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::testing::{A, B, C, members, samples};

    const REPORTED: [Reported; 2] = [
        Reported { cluster: "one", zone: "z", groups: &[A] },
        Reported { cluster: "two", zone: "", groups: &[B, C] },
    ];

    fn reports(heard: &[(&str, &str, [u64; 3])], failed: u64) -> Reports {
        // 10 by a, 5 by b, 5 by c.
        let samples =
            samples(100, &[(0, 1000, "a-1"), (1000, 1500, "b-1"), (1500, 2000, "c-1"), (2000, 2200, "!")]);
        let heard = heard.iter().map(|&(cluster, zone, [issued, succeeded, failed])| {
            ((cluster.to_owned(), zone.to_owned()), Heard { issued, succeeded, failed })
        });
        Reports::new(&REPORTED, heard.collect(), CallCounts::new(20, failed), &members(), &samples)
    }

    #[test]
    fn what_was_heard_is_beside_what_was_done() {
        let same = reports(&[("one", "z", [11, 10, 1]), ("two", "", [11, 10, 1])], 2);
        assert_eq!(same.problems(), [""; 0]);
        let text = same.to_string();
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["one", "in", "z", "11", "10", "1", "10"]);
        assert_eq!(words[2], ["all", "22", "20", "2", "20", "2"]);
    }

    #[test]
    fn an_rpc_not_sent_after_its_report_is_shown_but_is_not_a_violation() {
        let late = reports(&[("one", "z", [12, 10, 1]), ("two", "", [10, 10, 0])], 1);
        assert_eq!(late.problems(), [""; 0]);
        assert!(late.to_string().contains("one in z: 1 issued RPCs lost their connection"), "{late}");
    }

    #[test]
    fn differences_are_problems() {
        let lost = reports(&[("one", "z", [9, 9, 0]), ("two", "", [10, 10, 0])], 0);
        assert_eq!(lost.problems(), ["load of one in z: 10 answers, the control plane heard of 9"]);
        let open = reports(&[("one", "z", [10, 10, 1]), ("two", "", [10, 10, 0])], 1);
        assert_eq!(open.problems(), ["load of one in z: 11 RPCs ended, the beginning of 10 was heard"]);
        let failed = reports(&[("one", "z", [11, 10, 1]), ("two", "", [10, 10, 0])], 0);
        assert_eq!(failed.problems(), ["load: 0 RPCs failed on connections, the control plane heard of 1"]);
        let stray = reports(&[("one", "z", [10, 10, 0]), ("two", "", [10, 10, 0]), ("x", "", [1, 1, 0])], 0);
        assert_eq!(stray.problems(), ["load of x: 0 answers, the control plane heard of 1"]);
        assert_eq!(reports(&[], 0).problems().len(), 2);
    }
}
