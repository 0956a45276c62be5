//! Errors in a bootstrap.

use std::fmt;

/// Every problem found in a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapError {
    source: String,
    problems: Vec<BootstrapProblem>,
}

/// One problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootstrapProblem {
    /// The JSON path, such as `xds_servers[0].server_uri`; empty if the text as a whole is invalid.
    pub path: String,
    /// The description of the problem.
    pub reason: String,
}

impl BootstrapProblem {
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

impl BootstrapError {
    pub(super) fn new(source: impl Into<String>, problems: Vec<BootstrapProblem>) -> Self {
        Self { source: source.into(), problems }
    }

    /// The source of the bootstrap, human-readable.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.source
    }

    /// The problems; never empty.
    #[must_use]
    pub fn problems(&self) -> &[BootstrapProblem] {
        &self.problems
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xDS bootstrap from {}: ", self.source)?;
        for (i, BootstrapProblem { path, reason }) in self.problems.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            match path.as_str() {
                "" => write!(f, "{separator}{reason}")?,
                path => write!(f, "{separator}{path}: {reason}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for BootstrapError {}
