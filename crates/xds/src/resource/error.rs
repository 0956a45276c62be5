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

/// Every broken rule of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

/// How many violations are written out: the text is sent to the server, which may refuse requests beyond some MiB.
const SHOWN: usize = 50;

impl Violations {
    /// A single one.
    pub(crate) fn one(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self(vec![Violation { path: path.into(), why: why.into() }])
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

/// All of them in one line; of very many only the first ones, and how many there are more.
impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Violations {}
