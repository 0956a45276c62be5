//! Bootstraps, by the client's own parser.

use proxyless_xds::bootstrap::Bootstrap;

use super::locate::find;
use super::report::{Subject, Verdict};
use crate::file::node::Node;
use crate::file::problem::{Location, Position};

/// The keys that gRPC clients read.
const READ: &[&str] = &[
    "xds_servers",
    "node",
    "authorities",
    "certificate_providers",
    "client_default_listener_resource_name_template",
    "server_listener_resource_name_template",
];

/// Checks a bootstrap.
pub(super) fn check(file: &std::sync::Arc<str>, node: &Node) -> Subject {
    let at = |position: Position| Location { file: file.clone(), position };
    let mut subject = Subject::new("bootstrap", file, Some(at(node.at)));
    if let Err(error) = Bootstrap::from_json(&node.to_json().to_string()) {
        subject.verdict = Verdict::Nack;
        for problem in error.problems() {
            subject.reject(&problem.path, &problem.reason);
        }
    }
    for entry in node.entries() {
        if !READ.contains(&entry.key.as_str()) {
            let hint = crate::file::did_you_mean(&entry.key, READ.iter().copied());
            subject.warn(&entry.key, format!("is ignored by gRPC clients{hint}"));
        }
    }
    for finding in &mut subject.findings {
        finding.location = Some(at(find(node, &finding.path)));
    }
    subject
}
