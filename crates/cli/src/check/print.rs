//! A report as text or JSON.

use std::error::Error;
use std::fmt::Write as _;

use proxyless_control_plane::check::{Finding, Report, Severity, Subject, Verdict};
use serde_json::json;

use crate::serve::count;
use crate::status::table::Style;
use crate::text::{safe, safe_json};

pub(super) fn text(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for subject in &report.subjects {
        one(subject, style, &mut text);
    }
    let (errors, warnings) = (report.findings(Severity::Error), report.findings(Severity::Warning));
    let verdict = match (report.subjects.is_empty(), errors) {
        (true, _) => "nothing to check",
        (false, 0) => "a gRPC client accepts everything",
        (false, _) => "a gRPC client does not accept everything",
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{}: {} ACK, {} NACK, {}, {}",
        style.bold(verdict),
        report.count(Verdict::Ack),
        report.count(Verdict::Nack),
        count(errors, "error"),
        count(warnings, "warning")
    );
    text
}

fn one(subject: &Subject, style: Style, text: &mut String) {
    let verdict = match subject.verdict {
        Verdict::Ack => style.state("ACK  "),
        Verdict::Nack => style.state("NACK "),
        Verdict::Ignored => "-    ".to_owned(),
        Verdict::Error => style.state("NACK ").replace("NACK ", "ERROR"),
    };
    let place = subject.location.as_ref().map(|location| format!("  ({location})")).unwrap_or_default();
    let _ = writeln!(text, "{verdict} {} {}{}", subject.kind, safe(&subject.name), safe(&place));
    for finding in &subject.findings {
        let _ = writeln!(text, "      {}", line(subject, finding));
    }
}

fn line(subject: &Subject, finding: &Finding) -> String {
    let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
    // The place of the subject itself is in the line above.
    let place = finding.location.as_ref().filter(|location| subject.location.as_ref() != Some(location));
    let place = place.map(|location| format!("{location}: ")).unwrap_or_default();
    let path = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
    safe(&format!("{place}{severity}: {path}{}", finding.message)).into_owned()
}

pub(super) fn json(report: &Report) -> Result<String, Box<dyn Error>> {
    let value = json!({
        "accepted": report.is_accepted(),
        "acks": report.count(Verdict::Ack),
        "nacks": report.count(Verdict::Nack),
        "errors": report.findings(Severity::Error),
        "warnings": report.findings(Severity::Warning),
        "subjects": report.subjects,
    });
    Ok(safe_json(&serde_json::to_string_pretty(&value)?).into_owned() + "\n")
}
