//! Violations in a resource.

use std::fmt;

/// A violation and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field path from the resource's root: `endpoints[0].lb_endpoints[2].endpoint.address`.
    pub path: String,
    /// The violated rule.
    pub why: String,
}

/// The violations of one resource: the first ones, and the number of others.
///
/// A resource can violate a rule every few bytes, so neither all violations nor all of a long text are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// At most 50 violations.
    pub first: Vec<Violation>,
    /// The number of further violations.
    pub more: usize,
}

/// The maximum number of violations kept: the text is sent to the server, which may refuse large requests.
const KEPT: usize = 50;
/// The maximum length of a path or reason, both of which may quote the resource.
const MAX_TEXT: usize = 4096;

impl Violations {
    /// A single violation.
    pub(crate) fn one(path: impl ToString, why: impl Into<String>) -> Self {
        let mut violations = Self::default();
        violations.push(path, why);
        violations
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Adds a violation. Its texts are formatted only if it is kept.
    pub(crate) fn push(&mut self, path: impl ToString, why: impl Into<String>) {
        if self.first.len() < KEPT {
            let (path, why) = (cut(path.to_string(), MAX_TEXT), cut(why.into(), MAX_TEXT));
            self.first.push(Violation { path, why });
        } else {
            self.more += 1;
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.why),
            path => write!(f, "{path}: {}", self.why),
        }
    }
}

/// Truncates the text to at most `max` bytes, at a character boundary.
pub(crate) fn cut(mut text: String, max: usize) -> String {
    const CUT: &str = " ... (cut)";
    if text.len() > max {
        let end =
            (0..=max.saturating_sub(CUT.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(CUT);
        text.shrink_to_fit();
    }
    text
}

/// The violations in one line; if there are very many, the first ones and the number of others.
impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.first.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Violations {}
