//! docs/observability.md and the Grafana dashboard against the code: every metric and label that a panel names exists, and
//! the tables of metrics and of log events are complete.
//!
//! `UPDATE_DOCS=1 cargo test -p proxyless-guide --test observability` writes the tables.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proxyless::telemetry::{Default, Instrument, Kind, Label, Recorder as _, instruments};
use proxyless_admin::MetricStore;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The labels of each sample that `/metrics` can have, by its name.
fn samples() -> BTreeMap<String, BTreeSet<String>> {
    let store = MetricStore::new();
    let all = instruments::ALL.iter().filter(|instrument| instrument.kind != Kind::Gauge);
    for instrument in all.copied() {
        let labels = instrument.labels.iter().chain(instrument.optional_labels);
        let labels: Vec<_> = labels.map(|&label| (label, "x".into())).collect();
        store.series(instrument, &labels).record(1.0);
    }
    let mut samples = BTreeMap::new();
    for line in store.to_text().lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').expect("every metric has a target");
        let labels =
            labels.split("\",").filter_map(|label| label.split_once("=\"")).map(|(key, _)| key.into());
        samples.entry(name.to_owned()).or_insert_with(BTreeSet::new).extend(labels);
    }
    // Gauges come from xDS clients.
    for instrument in instruments::ALL.iter().filter(|instrument| instrument.kind == Kind::Gauge) {
        let labels = instrument.labels.iter().map(|label| label.key().replace('.', "_")).collect();
        samples.insert(instrument.name.replace('.', "_"), labels);
    }
    samples
}

/// The words of an expression that begin with `grpc_`.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    expression.split(move |c| !is_part(c)).filter(|word| word.starts_with("grpc_"))
}

#[test]
fn a66_every_metric_and_label_of_the_dashboard_exists() {
    let dashboard: Value = serde_json::from_str(&read("docs/grafana/proxyless.json")).expect("JSON");
    let samples = samples();
    let all_labels: BTreeSet<&String> = samples.values().flatten().collect();
    let (mut used, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let panels = dashboard["panels"].as_array().expect("panels");
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let queries = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions = expressions.map(|target| target["expr"].as_str().expect("an expression"));
    for expression in expressions.chain(queries) {
        let metrics: Vec<_> = words(expression).filter(|word| samples.contains_key(*word)).collect();
        assert!(!metrics.is_empty(), "no metric in {expression}");
        for word in words(expression) {
            let known = samples.contains_key(word) || all_labels.contains(&word.to_owned());
            assert!(known, "{word} is neither a metric nor a label: {expression}");
            let is_label = !samples.contains_key(word);
            let fits = metrics.iter().all(|metric| samples[*metric].contains(word));
            assert!(!is_label || fits, "{word} is not a label of {metrics:?}");
        }
        used.extend(metrics.into_iter().map(str::to_owned));
    }
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "panel {} has the id of another", panel["title"]);
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().expect("a legend");
            let labels = words(legend).filter(|word| !target["expr"].as_str().unwrap_or("").contains(word));
            assert_eq!(labels.collect::<Vec<_>>(), [""; 0], "the legend of {}", panel["title"]);
        }
    }
    // The other way round: no metric is without a panel, except the names that A94 has replaced and our own.
    for instrument in instruments::ALL {
        let name = instrument.name.replace('.', "_");
        let shown = used.iter().any(|used| used.starts_with(&name));
        let spared = name.starts_with("grpc_lb_pick_first_") || name.starts_with("proxyless_");
        assert!(shown || spared, "{} is on no panel", instrument.name);
    }
}

/// The text between `<!-- name -->` and `<!-- end of name -->`, which must be `expected`.
fn compare(file: &str, name: &str, expected: &str) {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let text = read(file);
    let from = text.find(&start).unwrap_or_else(|| panic!("{file} has no {start:?}")) + start.len();
    let to = text.find(&end).unwrap_or_else(|| panic!("{file} has no {end:?}"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{}{expected}{}", &text[..from], &text[to..]);
        std::fs::write(root().join(file), text).expect("the file can be written");
        return;
    }
    let (found, expected): (Vec<_>, Vec<_>) = (text[from..to].lines().collect(), expected.lines().collect());
    let missing: Vec<_> = expected.iter().filter(|row| !found.contains(row)).collect();
    let obsolete: Vec<_> = found.iter().filter(|row| !expected.contains(row)).collect();
    let same = found == expected;
    assert!(same, "{file}: missing {missing:#?}, obsolete {obsolete:#?}; run with UPDATE_DOCS=1 to write it");
}

#[test]
fn a79_the_table_of_metrics_is_that_of_the_catalogue() {
    let short = |label: &Label| {
        let key = label.key();
        let key = key.trim_start_matches("grpc.").trim_start_matches("lb.").trim_start_matches("xds.");
        key.rsplit('.').next().unwrap_or(key).to_owned()
    };
    let row = |instrument: &&'static Instrument| {
        let kind = match instrument.kind {
            Kind::Counter => "counter",
            Kind::UpDownCounter => "up-down counter",
            Kind::Histogram(_) => "histogram",
            _ => "gauge",
        };
        let labels = |labels: &[Label]| labels.iter().map(short).collect::<Vec<_>>().join(", ");
        let optional = match instrument.optional_labels {
            [] => String::new(),
            optional => format!(" ({})", labels(optional)),
        };
        let default = if instrument.default == Default::On { "yes" } else { "no" };
        format!(
            "| `{}` | {kind}, `{}` | {}{optional} | {default} | {} |\n",
            instrument.name,
            instrument.unit,
            labels(instrument.labels),
            instrument.description
        )
    };
    let head =
        "| Metric | Kind, unit | Labels (optional ones) | On by default | Meaning |\n|---|---|---|---|---|\n";
    let rows: String = instruments::ALL.iter().map(row).collect();
    compare("docs/observability.md", "metrics", &format!("{head}{rows}"));
}

#[test]
fn the_table_of_log_events_is_complete() {
    let head = "| Target | Level | Message | Fields |\n|---|---|---|---|\n";
    let rows: String = events::of_libraries(&root()).iter().map(ToString::to_string).collect();
    compare("docs/observability.md", "events", &format!("{head}{rows}"));
}
