//! Dumps of CSDS: the resources that a client has, and what it says of them.

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus;
use envoy_types::pb::envoy::service::status::v3::ClientConfig;
use proxyless_xds::resource::DecodeContext;

use super::report::{Report, Severity, Subject, Verdict};
use super::{Item, check};
use crate::{Messages, short_type};

/// Checks what clients say of themselves. A resource with its content is checked like one of a file.
#[must_use]
pub fn clients(clients: &[ClientConfig], cx: &DecodeContext, messages: &Messages) -> Report {
    let mut report = Report::default();
    for client in clients {
        let mut items = Vec::new();
        for resource in &client.generic_xds_configs {
            if let Some(value) = &resource.xds_config {
                items.push(Item::new(resource.type_url.clone(), resource.name.clone(), value.clone()));
            }
        }
        let mut checked = check(&items, cx, messages);
        for resource in &client.generic_xds_configs {
            let kind = short_type(&resource.type_url);
            if resource.xds_config.is_none() {
                checked.subjects.push(Subject::new(kind, &resource.name, None));
            }
            let status = ClientResourceStatus::try_from(resource.client_status)
                .unwrap_or(ClientResourceStatus::Unknown);
            let Some(subject) = checked.subject(kind, &resource.name) else { continue };
            match status {
                ClientResourceStatus::Nacked | ClientResourceStatus::ReceivedError => {
                    subject.verdict = Verdict::Nack;
                }
                ClientResourceStatus::DoesNotExist => {
                    subject.warn("", "the client was told that it does not exist")
                }
                ClientResourceStatus::Requested => subject.warn("", "the client has requested it and waits"),
                ClientResourceStatus::Timeout => subject.warn("", "the client has waited too long for it"),
                _ => {}
            }
            if let Some(error) = &resource.error_state {
                let version = match error.version_info.as_str() {
                    "" => String::new(),
                    version => format!(" (version {version})"),
                };
                let said = format!("the client says{version}: {}", error.details);
                match subject.verdict {
                    Verdict::Nack => subject.reject("", &said),
                    _ => subject.warn("", said),
                }
            } else if subject.verdict == Verdict::Nack
                && !subject.findings.iter().any(|finding| finding.severity == Severity::Error)
            {
                subject.reject("", "the client rejected it, without a reason");
            }
        }
        report.extend(checked);
    }
    report
}
