//! Files: finds out what each document is, and checks it.

use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusResponse};
use prost::{Message as _, Name as _};
use proxyless_xds::resource::DecodeContext;

use super::report::{Report, Severity, Subject, Verdict};
use super::{bootstrap, check, dump};
use crate::file::node::{Node, Value};
use crate::file::problem::{Problem, Problems};
use crate::file::yaml;
use crate::mesh::raw;
use crate::{Mesh, Messages, Source};

/// Checks files. All mesh files together are one mesh; bootstraps and dumps of CSDS stand for themselves.
#[must_use]
pub fn check_sources(sources: &[Source], cx: &DecodeContext, messages: &Messages) -> Report {
    let mut report = Report::default();
    let mut meshes = Vec::new();
    for source in sources {
        let mut problems = Problems::of(&source.name);
        let documents = yaml::documents(&source.text, yaml::Syntax::of(&source.name), &mut problems);
        match documents.first().map(kind) {
            Some(Kind::Bootstrap) => {
                report.subjects.extend(documents.iter().map(|one| bootstrap::check(&source.name, one)));
            }
            Some(Kind::Dump) => {
                let clients: Vec<ClientConfig> =
                    documents.iter().flat_map(|one| clients(one, messages, &mut problems)).collect();
                broken(problems.found, &mut report);
                report.extend(dump::clients(&clients, cx, messages));
            }
            // A file that cannot be read reports its problems as a mesh file.
            Some(Kind::Mesh) | None => meshes.push(source.clone()),
        }
    }
    match Mesh::read(&meshes, messages) {
        Ok(mesh) => report.extend(check(&mesh.items(), cx, messages)),
        Err(error) => broken(error.0, &mut report),
    }
    report
}

enum Kind {
    Bootstrap,
    Dump,
    Mesh,
}

fn kind(document: &Node) -> Kind {
    let is_client = |node: &Node| {
        ["generic_xds_configs", "genericXdsConfigs"].iter().any(|key| node.entry(key).is_some())
    };
    match &document.value {
        Value::Map(_)
            if document.entry("xds_servers").is_some() || document.entry("authorities").is_some() =>
        {
            Kind::Bootstrap
        }
        Value::Map(_) if is_client(document) || document.entry("config").is_some() => Kind::Dump,
        Value::List(items) if items.first().is_some_and(is_client) => Kind::Dump,
        _ => Kind::Mesh,
    }
}

/// The clients of a dump: a response of CSDS, a list of clients, or one.
fn clients(document: &Node, messages: &Messages, problems: &mut Problems) -> Vec<ClientConfig> {
    let one = |node: &Node, problems: &mut Problems| {
        let bytes = raw::message(messages, &ClientConfig::full_name(), node, problems)?;
        ClientConfig::decode(&bytes[..]).ok()
    };
    match &document.value {
        Value::List(items) => items.iter().filter_map(|item| one(item, problems)).collect(),
        _ if document.entry("config").is_some() => {
            let bytes = raw::message(messages, &ClientStatusResponse::full_name(), document, problems);
            let response = bytes.and_then(|bytes| ClientStatusResponse::decode(&bytes[..]).ok());
            response.map(|response| response.config).unwrap_or_default()
        }
        _ => one(document, problems).into_iter().collect(),
    }
}

/// Adds the problems of files that cannot be read, as one subject per file.
fn broken(problems: Vec<Problem>, report: &mut Report) {
    for Problem { location, message } in problems {
        let file = location.file.to_string();
        if report.subject("file", &file).is_none() {
            let mut subject = Subject::new("file", &file, None);
            subject.verdict = Verdict::Error;
            report.subjects.push(subject);
        }
        if let Some(subject) = report.subject("file", &file) {
            subject.reject("", &message);
            if let Some(finding) = subject.findings.last_mut() {
                finding.severity = Severity::Error;
                finding.location = Some(location);
            }
        }
    }
}
