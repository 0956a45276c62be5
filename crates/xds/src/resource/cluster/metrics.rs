//! Which metrics that backends report of themselves go into load reports (gRFC A64, A85).

use std::collections::BTreeSet;
use std::sync::Arc;

/// Which of a backend's metrics are reported to the management server.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MetricSelection {
    /// Every named metric, under its own name (gRFC A64).
    #[default]
    AllNamed,
    /// Those that the Cluster lists; named ones with `named_metrics.` before their names (gRFC A85).
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
    /// `named_metrics.<name>`, without the prefix. Empty if all are listed anyway.
    pub named: BTreeSet<String>,
}

impl MetricSelection {
    /// A85: reads the field's entries. Those that mean nothing (yet) are ignored.
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

    /// Whether nothing is selected: then no backend's report needs to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(listed) if **listed == ListedMetrics::default())
    }
}
