//! Where validation is in a resource, and what it found so far.
//!
//! A [`Field`] is a place in the resource. It lives on the stack and points to its parent, so that going down costs
//! nothing; the path is written out only when a rule is broken. All places of one resource share one list of
//! violations, so nothing stops at the first.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};

use super::{DecodeContext, Violations};

/// Runs a validator on a whole resource: its outcome, or the violations that it recorded.
pub(crate) fn validate<T>(
    cx: &DecodeContext,
    validator: impl FnOnce(&Field<'_>) -> Option<T>,
) -> Result<T, Violations> {
    let shared =
        Shared { found: RefCell::default(), regex_bytes: Cell::new(cx.limits.regex_bytes_per_resource) };
    let outcome = validator(&Field { cx, shared: &shared, parent: None, step: Step::Root });
    match (outcome, shared.found.into_inner()) {
        (Some(outcome), found) if found.is_empty() => Ok(outcome),
        (None, found) if found.is_empty() => Err(Violations::one("", "not valid")),
        (_, found) => Err(found),
    }
}

/// A place in a resource.
pub(crate) struct Field<'a> {
    cx: &'a DecodeContext,
    shared: &'a Shared,
    parent: Option<&'a Field<'a>>,
    step: Step<'a>,
}

/// What all places of one resource have in common.
struct Shared {
    found: RefCell<Violations>,
    /// How large the regexes that follow may be together.
    regex_bytes: Cell<usize>,
}

enum Step<'a> {
    Root,
    Field(&'static str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Field<'a> {
    /// A field of the message here.
    pub(crate) fn field<'s>(&'s self, name: &'static str) -> Field<'s> {
        self.child(Step::Field(name))
    }

    /// An element of the list here.
    pub(crate) fn index<'s>(&'s self, index: usize) -> Field<'s> {
        self.child(Step::Index(index))
    }

    /// An entry of the map here.
    pub(crate) fn key<'s>(&'s self, key: &'s str) -> Field<'s> {
        self.child(Step::Key(key))
    }

    /// What validation depends on besides the bytes.
    pub(crate) fn context(&self) -> &'a DecodeContext {
        self.cx
    }

    /// Records that a rule is broken here.
    pub(crate) fn reject(&self, why: impl Into<String>) {
        self.shared.found.borrow_mut().push(self, why);
    }

    /// How large the regexes may be together that this and later places have.
    pub(crate) fn regex_bytes(&self) -> &'a Cell<usize> {
        &self.shared.regex_bytes
    }

    /// The value here, which must be set.
    pub(crate) fn require<T>(&self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.reject("must be set");
        }
        value
    }

    /// The text here, which must not be empty.
    pub(crate) fn require_text<'t>(&self, text: &'t str) -> Option<&'t str> {
        if text.is_empty() {
            self.reject("must not be empty");
            return None;
        }
        Some(text)
    }

    fn child<'s>(&'s self, step: Step<'s>) -> Field<'s> {
        Field { cx: self.cx, shared: self.shared, parent: Some(self), step }
    }
}

/// The path from the resource's root: `endpoints[0].lb_endpoints[2]`.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            fmt::Display::fmt(parent, f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) => {
                if self.parent.is_some_and(|parent| !matches!(parent.step, Step::Root)) {
                    f.write_char('.')?;
                }
                f.write_str(name)
            }
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key:?}]"),
        }
    }
}
