//! The backend metrics that are included in load reports (gRFC A64, A85).

use std::collections::BTreeSet;
use std::sync::Arc;

/// The backend metrics that are reported to the management server.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MetricSelection {
    /// All named metrics, under their own names (gRFC A64).
    #[default]
    AllNamed,
    /// The metrics that the Cluster lists; named ones are prefixed with `named_metrics.` (gRFC A85).
    Listed(Arc<ListedMetrics>),
}

/// `Cluster.lrs_report_endpoint_metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedMetrics {
    /// `cpu_utilization`.
    pub cpu_utilization: bool,
    /// `mem_utilization`.
    pub mem_utilization: bool,
    /// `application_utilization`.
    pub application_utilization: bool,
    /// `named_metrics.*`.
    pub all_named: bool,
    /// `named_metrics.<name>`, without the prefix. Empty if all are listed.
    pub named: BTreeSet<String>,
}

impl MetricSelection {
    /// A85: parses the field's entries. Unknown entries are ignored.
    pub(super) fn listed(entries: &[String]) -> Self {
        let mut listed = ListedMetrics::default();
        for entry in entries {
            match entry.as_str() {
                "cpu_utilization" => listed.cpu_utilization = true,
                "mem_utilization" => listed.mem_utilization = true,
                "application_utilization" => listed.application_utilization = true,
                "named_metrics.*" => listed.all_named = true,
                other => {
                    let name = other.strip_prefix("named_metrics.").filter(|name| !name.is_empty());
                    listed.named.extend(name.map(str::to_owned));
                }
            }
        }
        if listed.all_named {
            listed.named.clear();
        }
        Self::Listed(Arc::new(listed))
    }

    /// Whether no metric is selected, so that backend reports need not be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(listed) if **listed == ListedMetrics::default())
    }
}
