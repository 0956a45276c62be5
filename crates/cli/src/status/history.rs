//! The last minutes of each cluster as sparklines, for `--watch`.

use std::collections::BTreeMap;

use proxyless_admin::{HistorySeries, HistoryView};

use super::table::Style;
use crate::text::safe;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The width where output is not a terminal.
const DEFAULT_WIDTH: usize = 80;
/// The greatest width of a name.
const MOST_NAME: usize = 24;
/// The width of a value after its sparkline, with the spaces around it.
const VALUE: usize = 10;
/// The number of cells of a sparkline, at least; with less room there are values only.
const LEAST_CELLS: usize = 4;
const MOST_CELLS: usize = 40;
/// The number of clusters of a channel that are shown.
const MOST_CLUSTERS: usize = 12;

/// The clusters of each channel: rate, errors and p99. Empty if nothing was measured.
pub(super) fn to_text(history: &HistoryView, style: Style, width: Option<usize>) -> String {
    let mut by_target: BTreeMap<&str, Vec<(String, &HistorySeries)>> = BTreeMap::new();
    for series in history.series.iter().filter(|series| series.endpoint.is_none()) {
        if let Some(cluster) = &series.cluster {
            by_target.entry(&series.target).or_default().push((short(&safe(cluster)), series));
        }
    }
    let names = by_target.values().flatten().map(|(name, _)| name.chars().count());
    let name_width = names.max().unwrap_or(0).max("CLUSTER".len());
    let room = width.unwrap_or(DEFAULT_WIDTH).saturating_sub(name_width + 3 * VALUE) / 3;
    let cells = if room < LEAST_CELLS { 0 } else { room.min(MOST_CELLS) };
    let span = match &history.times[..] {
        [first, .., last] => last - first,
        _ => 0.0,
    };
    let mut text = String::new();
    for (target, clusters) in by_target {
        let column = cells + VALUE - 2;
        text += &format!("{} the last {span:.0} s\n", style.bold(&safe(target)));
        let header = format!(
            "{:<name_width$}  {:<column$}  {:<column$}  {:<column$}",
            "CLUSTER", "RPCS", "ERRORS", "P99"
        );
        text += &format!("{}\n", header.trim_end());
        for (name, series) in clusters.iter().take(MOST_CLUSTERS) {
            let columns = [
                column_of(&series.rate, cells, per_second),
                column_of(&series.errors, cells, per_second),
                column_of(&series.p99, cells, latency),
            ];
            let [rate, errors, p99] = columns;
            let failing = series.errors.iter().flatten().any(|errors| *errors > 0.0);
            let errors = if failing { style.paint("31", &errors) } else { errors };
            text += &format!("{name:<name_width$}  {rate}  {errors}  {}\n", p99.trim_end());
        }
        if clusters.len() > MOST_CLUSTERS {
            text += &format!("and {} more clusters\n", clusters.len() - MOST_CLUSTERS);
        }
        text.push('\n');
    }
    text
}

fn short(name: &str) -> String {
    if name.chars().count() <= MOST_NAME {
        return name.to_owned();
    }
    name.chars().take(MOST_NAME - 1).chain(['…']).collect()
}

/// A sparkline, and the latest value.
fn column_of(values: &[Option<f64>], cells: usize, shown: fn(Option<f64>) -> String) -> String {
    let width = VALUE - 3;
    let latest = shown(values.last().copied().flatten());
    if cells == 0 {
        return format!("{latest:>0$}", width + 1);
    }
    format!("{} {latest:>width$}", sparkline(values, cells))
}

/// The latest values in so many cells; of the values that share a cell, the largest is drawn.
fn sparkline(values: &[Option<f64>], cells: usize) -> String {
    let step = values.len().div_ceil(cells).max(1);
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let mut drawn: Vec<char> = values
        .rchunks(step)
        .map(|part| part.iter().flatten().copied().reduce(f64::max).map_or(' ', |value| block(value, most)))
        .collect();
    drawn.resize(cells, ' ');
    drawn.iter().rev().collect()
}

fn block(value: f64, most: f64) -> char {
    if most <= 0.0 || value <= 0.0 {
        return BLOCKS[0];
    }
    // The smallest value that is not zero differs from zero.
    let level = (value / most * 7.0).round().clamp(1.0, 7.0);
    BLOCKS[level as usize]
}

fn per_second(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value == 0.0 || value >= 10.0 => format!("{value:.0}/s"),
        Some(value) => format!("{value:.1}/s"),
    }
}

fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.001 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 0.00995 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(clusters: &[&str]) -> HistoryView {
        let series = |cluster: &&str| {
            json!({
                "target": "xds:///\u{1b}[2Jx",
                "cluster": cluster,
                "rate": [null, 0.0, 50.0, 100.0],
                "errors": [null, 0.0, 0.0, 2.5],
                "p50": [null, null, 0.001, 0.002],
                "p99": [null, null, 0.02, 0.04],
            })
        };
        let mut all: Vec<_> = clusters.iter().map(series).collect();
        all.push(json!({"target": "t", "rate": [], "errors": [], "p50": [], "p99": []}));
        let history = json!({"recording": 1, "last_sample": 4, "times": [1.0, 2.0, 3.0, 4.0], "series": all, "marks": []});
        serde_json::from_value(history).unwrap()
    }

    #[test]
    fn each_cluster_has_a_line_of_sparklines() {
        let text = to_text(&history(&["eu"]), Style::Plain, Some(58));
        let lines = [
            r"xds:///\u{1b}[2Jx the last 3 s",
            "CLUSTER  RPCS             ERRORS           P99",
            "eu           ▁▅█   100/s      ▁▁█   2.5/s       ▅█   40 ms",
            "",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert!(to_text(&history(&["eu"]), Style::Colours, None).contains("\x1b[31m"));
    }

    #[test]
    fn lines_fit_the_terminal() {
        for width in [40, 58, 80, 200] {
            let text = to_text(
                &history(&["a-cluster-with-a-long-name-that-does-not-fit"]),
                Style::Plain,
                Some(width),
            );
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(longest <= width.max(54), "{width}: {longest}\n{text}");
        }
    }

    #[test]
    fn without_measurements_there_is_nothing() {
        assert_eq!(to_text(&history(&[]), Style::Plain, None), "");
    }

    #[test]
    fn many_clusters_are_counted() {
        let names: Vec<String> = (0..MOST_CLUSTERS + 3).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = to_text(&history(&names), Style::Plain, None);
        assert!(text.contains("\nand 3 more clusters\n"), "{text}");
    }

    #[test]
    fn the_largest_value_of_a_cell_is_drawn() {
        let values: Vec<_> = [0.0, 8.0, 0.0, 0.0, 1.0, 1.0].map(Some).into();
        assert_eq!(sparkline(&values, 3), "█▁▂");
        assert_eq!(sparkline(&values, 8), "  ▁█▁▁▂▂");
        assert_eq!(sparkline(&[None, Some(0.0)], 2), " ▁");
        assert_eq!(sparkline(&[], 2), "  ");
    }
}
