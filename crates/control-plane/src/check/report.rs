//! The result of a check.

use serde::Serialize;

use crate::Location;

/// The findings about all subjects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Resources, bootstraps and files, in the order in which they were found.
    pub subjects: Vec<Subject>,
}

/// A resource, a bootstrap or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// `Cluster`, `bootstrap`, `file` and so on.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The place of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// What a client does with it.
    pub verdict: Verdict,
    /// Everything found, errors first.
    pub findings: Vec<Finding>,
}

/// What a client does with a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Accepts it.
    Ack,
    /// Rejects it.
    Nack,
    /// Never requests it.
    Ignored,
    /// Cannot be read at all.
    Error,
}

/// One violation or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The field path; empty for the subject as a whole.
    pub path: String,
    /// The description.
    pub message: String,
    /// The place of the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A client rejects the resource because of it.
    Error,
    /// A client accepts the resource, but this part has no effect or leads nowhere.
    Warning,
}

impl Subject {
    pub(crate) fn new(kind: &str, name: &str, location: Option<Location>) -> Self {
        let (kind, name) = (kind.to_owned(), name.to_owned());
        Self { kind, name, location, verdict: Verdict::Ack, findings: Vec::new() }
    }

    pub(crate) fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.add(Severity::Warning, path, message.into());
    }

    pub(crate) fn reject(&mut self, path: &str, message: &str) {
        self.add(Severity::Error, path, message.to_owned());
    }

    fn add(&mut self, severity: Severity, path: &str, message: String) {
        self.findings.push(Finding { severity, path: path.to_owned(), message, location: None });
    }
}

impl Report {
    /// Adds the subjects of another report.
    pub fn extend(&mut self, other: Self) {
        self.subjects.extend(other.subjects);
    }

    /// The number of subjects with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.subjects.iter().filter(|subject| subject.verdict == verdict).count()
    }

    /// The number of findings of this severity.
    #[must_use]
    pub fn findings(&self, severity: Severity) -> usize {
        let all = self.subjects.iter().flat_map(|subject| &subject.findings);
        all.filter(|finding| finding.severity == severity).count()
    }

    /// Whether a client accepts everything that it requests.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.findings(Severity::Error) == 0
    }

    pub(crate) fn subject(&mut self, kind: &str, name: &str) -> Option<&mut Subject> {
        self.subjects.iter_mut().find(|subject| subject.kind == kind && subject.name == name)
    }
}
