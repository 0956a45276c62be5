//! Tables in Markdown: readable in a terminal, and the same in the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::digest::Digest;
use crate::field::Contestant;

/// A table: measures that share a prefix, one row per contestant.
struct Table {
    title: &'static str,
    prefix: &'static str,
    /// The contestant that the others are compared with, if any.
    baseline: Option<Contestant>,
}

const TABLES: [Table; 23] = [
    hyper("Unary calls, 1 at a time", "calls/001/"),
    hyper("Unary calls, 16 concurrent", "calls/016/"),
    hyper("Unary calls, 128 concurrent", "calls/128/"),
    hyper("Unary calls of 64 KiB, 16 concurrent", "calls-64k/016/"),
    hyper("Unary calls of 64 KiB, 128 concurrent", "calls-64k/128/"),
    hyper("Unary calls over TLS, 1 at a time", "tls/001/"),
    hyper("Unary calls over TLS, 128 concurrent", "tls/128/"),
    ours("Metrics and traces, 1 call at a time", "telemetry/001/"),
    ours("Metrics and traces, 128 concurrent", "telemetry/128/"),
    hyper("Four streams, message by message", "stream/"),
    hyper("1,000 streams, message by message", "stream-1000/"),
    hyper("Four streams of 32 bytes, client to server", "flood-up/"),
    hyper("Four streams of 32 bytes, server to client", "flood-down/"),
    hyper("Four streams of 1 MiB, client to server", "large-up/"),
    hyper("Four streams of 1 MiB, server to client", "large-down/"),
    hyper("A link of 50 ms there and back, server to client", "link/down/"),
    hyper("A link of 50 ms there and back, client to server", "link/up/"),
    ours("CPU per EDS update, endpoints in an idle priority", "update/idle/"),
    ours("CPU per EDS update, 1,000 connected endpoints", "update/connected/"),
    ours("CPU per EDS update of one of 1,000 clusters", "update/clusters/"),
    ours("Memory (anonymous, of the process)", "memory/"),
    ours("Time to the first RPC", "startup/"),
    Table { title: "Failover under load", prefix: "failover/", baseline: None },
];

/// A table with ratios to bare hyper.
const fn hyper(title: &'static str, prefix: &'static str) -> Table {
    Table { title, prefix, baseline: Some(Contestant::BareHyper) }
}

/// A table with ratios to proxyless.
const fn ours(title: &'static str, prefix: &'static str) -> Table {
    Table { title, prefix, baseline: Some(Contestant::Proxyless) }
}

/// All tables for which there are results.
pub(crate) fn tables(digest: &Digest) -> String {
    let mut text = String::new();
    for table in &TABLES {
        table.write(digest, &mut text);
    }
    inner(digest, &mut text);
    text
}

impl Table {
    fn write(&self, digest: &Digest, out: &mut String) {
        let measures: Vec<_> = digest.measures(self.prefix).collect();
        let contestants: BTreeSet<Contestant> =
            measures.iter().flat_map(|(_, measure)| measure.cells.keys().copied()).collect();
        if contestants.is_empty() {
            return;
        }
        // The shorter side becomes the columns.
        let names = contestants.iter().map(|contestant| contestant.name().to_owned());
        let labels = measures.iter().map(|(name, measure)| {
            format!("{} ({})", name.trim_start_matches(self.prefix).replace('/', ", "), measure.unit)
        });
        let cell = |measure: &str, contestant| self.cell(digest, measure, contestant);
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

    fn cell(&self, digest: &Digest, measure: &str, contestant: Contestant) -> String {
        let Some(value) = digest.value(measure, contestant) else { return "–".into() };
        let ratio = self.baseline.filter(|baseline| *baseline != contestant);
        match ratio.and_then(|baseline| digest.ratio(measure, contestant, baseline)) {
            Some(ratio) => {
                let median = value.median.map_or_else(|| value.text(number, ""), number);
                format!("{median} · {}", ratio.text(short, "x"))
            }
            None => value.text(number, ""),
        }
    }
}

/// The numbers of `inner`: the last part of a name identifies the number of a case.
fn inner(digest: &Digest, out: &mut String) {
    for (title, prefix) in [
        ("Picks, from inside", "inner/pick/"),
        ("Picks of each policy, from inside", "inner/policies/"),
        ("Updates, from inside", "inner/update/"),
        ("1,000 clusters, from inside", "inner/clusters/"),
        ("Coming connections, from inside", "inner/connect/"),
        ("Memory, from inside", "inner/memory/"),
    ] {
        let mut cases: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        for (name, measure) in digest.measures(prefix) {
            let Some(value) = digest.value(name, Contestant::Proxyless) else { continue };
            let Some((case, number_name)) = name.trim_start_matches(prefix).rsplit_once('/') else {
                continue;
            };
            let label = format!("{} ({})", number_name.replace('_', " "), measure.unit).replace(" ()", "");
            let spread = match value.median {
                Some(median) if value.range.is_none_or(|(least, most)| least == most) => number(median),
                _ => value.text(number, ""),
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

pub(super) struct Grid {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<String>)>,
}

impl Grid {
    pub(super) fn write(&self, out: &mut String) {
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
pub(super) fn short(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
