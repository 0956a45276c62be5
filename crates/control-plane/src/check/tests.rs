//! Verdicts, and the places of findings.

use proxyless_testkit::resources::{aggregate_cluster, eds_cluster};
use proxyless_testkit::{CDS, Resource};

use super::*;
use crate::Source;
use crate::file::problem::{Position, Problems};
use crate::file::yaml;

fn found(text: &str) -> Vec<String> {
    let messages = Messages::new().unwrap();
    let report = check_sources(&[Source::new("f", text)], &DecodeContext::default(), &messages);
    let line = |subject: &Subject, finding: &Finding| {
        let at = finding.location.as_ref().map(|location| location.position).unwrap_or(Position::START);
        format!(
            "{} {} {}:{} {}: {}",
            subject.kind, subject.name, at.line, at.column, finding.path, finding.message
        )
    };
    report.subjects.iter().flat_map(|one| one.findings.iter().map(|finding| line(one, finding))).collect()
}

#[test]
fn paths_lead_to_fields() {
    let text = "a:\n  - x: 1\n  - fooBar:\n      'k.1]': { z: 2 }\n";
    let mut problems = Problems::of(&"f".into());
    let root = yaml::documents(text, yaml::Syntax::Yaml, &mut problems).remove(0);
    let at = |path: &str| {
        let found = locate::find(&root, path);
        (found.line, found.column)
    };
    assert_eq!(at("a"), (1, 1));
    assert_eq!(at("a[0].x"), (2, 5));
    assert_eq!(at("a[1].foo_bar[\"k.1]\"].z"), (4, 17));
    assert_eq!(at("a[1].foo_bar.unknown"), (3, 5), "the closest ancestor");
    assert_eq!(at("a[9]"), (1, 1));
    assert_eq!(at(""), (1, 1));
    for strange in ["[", "[[", "..", "a..b", "a[\"", "a[]", ".[0]."] {
        at(strange);
    }
}

#[test]
fn a_violation_of_a_raw_resource_has_the_place_of_its_field() {
    let text = "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\ntype: EDS\nedsClusterConfig:\n  \
                eds_config: { path: x }\n";
    let found = found(text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("Cluster c 5:3 eds_cluster_config.eds_config: "), "{found:?}");
}

#[test]
fn a37_17_a_tree_that_is_too_deep_is_reported_by_the_graph_of_the_client() {
    let messages = Messages::new().unwrap();
    let mut resources: Vec<Resource> = vec![eds_cluster("c16").into()];
    for level in 0..16 {
        let child = format!("c{}", level + 1);
        resources.push(aggregate_cluster(&format!("c{level}"), [child.as_str()]).into());
    }
    let items: Vec<Item> =
        resources.iter().map(|one| Item::new(CDS, one.name(), one.value().clone())).collect();
    let mut report = check(&items, &DecodeContext::default(), &messages);
    let root = report.subject("Cluster", "c0").unwrap();
    assert!(root.findings.iter().any(|one| one.message.contains("more than 16 levels")), "{root:?}");
    let next = report.subject("Cluster", "c1").unwrap();
    assert!(!next.findings.iter().any(|one| one.message.contains("levels")), "{next:?}");
    assert!(report.is_accepted());
}

#[test]
fn every_ignored_field_exists_in_its_message() {
    ignored::table_is_true(&Messages::new().unwrap());
}
