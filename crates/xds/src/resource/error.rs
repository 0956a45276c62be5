//! What is wrong with a resource.

use std::fmt;

/// One broken rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, from the resource's root: `endpoints[0].lb_endpoints[2].endpoint.address`.
    pub path: String,
    /// The rule that it breaks.
    pub why: String,
}

/// The broken rules of one resource: the first ones, and how many there are more.
///
/// A resource can break a rule every few bytes, so not all are kept; nor is all of a long text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    /// At most 50.
    pub first: Vec<Violation>,
    /// How many were found besides.
    pub more: usize,
}

/// How many violations are kept: the text is sent to the server, which may refuse requests beyond some MiB.
const KEPT: usize = 50;
/// How long a path or reason may be: both may repeat text of the resource.
const MAX_TEXT: usize = 4096;

impl Violations {
    /// A single one.
    pub(crate) fn one(path: impl ToString, why: impl Into<String>) -> Self {
        let mut violations = Self::default();
        violations.push(path, why);
        violations
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Adds one. The texts are made only if it is kept.
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

/// The text, cut at a character's boundary if it is longer than `max`.
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

/// All of them in one line; of very many only the first ones, and how many there are more.
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
