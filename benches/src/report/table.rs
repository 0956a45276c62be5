//! Tables in Markdown: readable in a terminal, and the same in the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::field::Contestant;
use crate::results::{Results, Summary};

/// A table: measures that share a prefix, one row per contestant.
struct Table {
    title: &'static str,
    prefix: &'static str,
    /// The contestant that the others are compared with, if any.
    baseline: Option<Contestant>,
}

const TABLES: [Table; 14] = [
    Table { title: "Unary calls, 1 at a time", prefix: "calls/001/", baseline: Some(Contestant::BareHyper) },
    Table {
        title: "Unary calls, 16 concurrent",
        prefix: "calls/016/",
        baseline: Some(Contestant::BareHyper),
    },
    Table {
        title: "Unary calls, 128 concurrent",
        prefix: "calls/128/",
        baseline: Some(Contestant::BareHyper),
    },
    Table {
        title: "Unary calls over TLS, 1 at a time",
        prefix: "tls/001/",
        baseline: Some(Contestant::BareHyper),
    },
    Table {
        title: "Unary calls over TLS, 128 concurrent",
        prefix: "tls/128/",
        baseline: Some(Contestant::BareHyper),
    },
    Table {
        title: "Metrics and traces, 1 call at a time",
        prefix: "telemetry/001/",
        baseline: Some(Contestant::Proxyless),
    },
    Table {
        title: "Metrics and traces, 128 concurrent",
        prefix: "telemetry/128/",
        baseline: Some(Contestant::Proxyless),
    },
    Table {
        title: "Four streams, message by message",
        prefix: "stream/",
        baseline: Some(Contestant::BareHyper),
    },
    Table {
        title: "CPU per EDS update, endpoints in an idle priority",
        prefix: "update/idle/",
        baseline: Some(Contestant::Proxyless),
    },
    Table {
        title: "CPU per EDS update, 1,000 connected endpoints",
        prefix: "update/connected/",
        baseline: Some(Contestant::Proxyless),
    },
    Table {
        title: "CPU per EDS update of one of 1,000 clusters",
        prefix: "update/clusters/",
        baseline: Some(Contestant::Proxyless),
    },
    Table {
        title: "Memory (anonymous, of the process)",
        prefix: "memory/",
        baseline: Some(Contestant::Proxyless),
    },
    Table { title: "Time to the first RPC", prefix: "startup/", baseline: Some(Contestant::Proxyless) },
    Table { title: "Failover under load", prefix: "failover/", baseline: None },
];

/// All tables for which there are results.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = String::new();
    for table in &TABLES {
        table.write(results, &mut text);
    }
    inner(results, &mut text);
    text
}

impl Table {
    fn write(&self, results: &Results, out: &mut String) {
        let measures: Vec<_> = results.measures(self.prefix).collect();
        let contestants: BTreeSet<Contestant> =
            measures.iter().flat_map(|(_, measure)| measure.samples.keys().copied()).collect();
        if contestants.is_empty() {
            return;
        }
        // The shorter side becomes the columns.
        let names = contestants.iter().map(|contestant| contestant.name().to_owned());
        let labels = measures.iter().map(|(name, measure)| {
            format!("{} ({})", name.trim_start_matches(self.prefix).replace('/', ", "), measure.unit)
        });
        let cell = |measure: &str, contestant| self.cell(results, measure, contestant);
        let grid = if measures.len() > contestants.len() {
            let rows = measures.iter().zip(labels).map(|((name, _), label)| {
                (label, contestants.iter().map(|contestant| cell(name, *contestant)).collect())
            });
            Grid { columns: names.collect(), rows: rows.collect() }
        } else {
            let rows = contestants.iter().zip(names).map(|(contestant, label)| {
                (label, measures.iter().map(|(name, _)| cell(name, *contestant)).collect())
            });
            Grid { columns: labels.collect(), rows: rows.collect() }
        };
        let _ = writeln!(out, "### {}\n", self.title);
        grid.write(out);
    }

    fn cell(&self, results: &Results, measure: &str, contestant: Contestant) -> String {
        let Some(value) = results.summary(measure, contestant) else { return "–".into() };
        let ratio = self.baseline.filter(|baseline| *baseline != contestant);
        match ratio.and_then(|baseline| results.ratio(measure, contestant, baseline)) {
            Some(Summary { median, least, most }) => {
                format!("{} · {}x ({}–{})", number(value.median), short(median), short(least), short(most))
            }
            None => format!("{} ({}–{})", number(value.median), number(value.least), number(value.most)),
        }
    }
}

/// The numbers of `inner`: the last part of a name identifies the number of a case.
fn inner(results: &Results, out: &mut String) {
    for (title, prefix) in [
        ("Picks, from inside", "inner/pick/"),
        ("Picks of each policy, from inside", "inner/policies/"),
        ("Updates, from inside", "inner/update/"),
        ("1,000 clusters, from inside", "inner/clusters/"),
        ("Coming connections, from inside", "inner/connect/"),
        ("Memory, from inside", "inner/memory/"),
    ] {
        let mut cases: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for (name, measure) in results.measures(prefix) {
            let Some(value) = results.summary(name, Contestant::Proxyless) else { continue };
            let Some((case, number_name)) = name.trim_start_matches(prefix).rsplit_once('/') else {
                continue;
            };
            let label = format!("{} ({})", number_name.replace('_', " "), measure.unit).replace(" ()", "");
            let spread = if value.least == value.most {
                number(value.median)
            } else {
                format!("{} ({}–{})", number(value.median), number(value.least), number(value.most))
            };
            cases.entry(case).or_default().insert(label, spread);
        }
        let columns: BTreeSet<&String> = cases.values().flat_map(BTreeMap::keys).collect();
        let rows = cases.iter().map(|(case, numbers)| {
            let cells = columns.iter().map(|column| numbers.get(*column).cloned().unwrap_or_default());
            (case.replace('/', ", "), cells.collect())
        });
        let grid = Grid { rows: rows.collect(), columns: columns.iter().map(|c| (*c).clone()).collect() };
        if !grid.rows.is_empty() {
            let _ = writeln!(out, "### {title}\n");
            grid.write(out);
        }
    }
}

struct Grid {
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

impl Grid {
    fn write(&self, out: &mut String) {
        let lines = [(String::new(), self.columns.clone())].into_iter().chain(self.rows.iter().cloned());
        let lines: Vec<Vec<String>> =
            lines.map(|(label, cells)| [label].into_iter().chain(cells).collect()).collect();
        let widths: Vec<usize> = (0..=self.columns.len())
            .map(|at| {
                lines.iter().filter_map(|line| line.get(at)).map(|c| c.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (at, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$} "));
            let _ = writeln!(out, "|{}|", cells.collect::<Vec<_>>().join("|"));
            if at == 0 {
                let rules = widths.iter().map(|width| "-".repeat(width + 2));
                let _ = writeln!(out, "|{}|", rules.collect::<Vec<_>>().join("|"));
            }
        }
        out.push('\n');
    }
}

/// A number with a suitable precision.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size == f64::INFINITY => "never".into(),
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e4 => format!("{:.1} k", value / 1e3),
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// A ratio.
fn short(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
