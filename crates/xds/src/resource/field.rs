//! The current location of validation in a resource, and the violations found so far.
//!
//! A [`Field`] is a location in the resource. It lives on the stack and points to its parent, so that descending costs
//! nothing; the path is formatted only for a violation. All locations of a resource share one list of violations, so
//! validation does not stop at the first.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write};

use super::{DecodeContext, Violations};

/// Runs a validator on a resource: returns its result, or the violations that it recorded.
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

/// A location in a resource.
pub(crate) struct Field<'a> {
    cx: &'a DecodeContext,
    shared: &'a Shared,
    parent: Option<&'a Field<'a>>,
    step: Step<'a>,
}

/// The state shared by all locations of a resource.
struct Shared {
    found: RefCell<Violations>,
    /// The remaining size budget for compiled regexes.
    regex_bytes: Cell<usize>,
}

enum Step<'a> {
    Root,
    Field(&'static str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Field<'a> {
    /// A field of this message.
    pub(crate) fn field<'s>(&'s self, name: &'static str) -> Field<'s> {
        self.child(Step::Field(name))
    }

    /// An element of this list.
    pub(crate) fn index<'s>(&'s self, index: usize) -> Field<'s> {
        self.child(Step::Index(index))
    }

    /// An entry of this map.
    pub(crate) fn key<'s>(&'s self, key: &'s str) -> Field<'s> {
        self.child(Step::Key(key))
    }

    /// The parameters of validation other than the bytes.
    pub(crate) fn context(&self) -> &'a DecodeContext {
        self.cx
    }

    /// Records a violation at this location.
    pub(crate) fn reject(&self, why: impl Into<String>) {
        self.shared.found.borrow_mut().push(self, why);
    }

    /// Records a violation; returns `None`, the value of an invalid field.
    pub(crate) fn fail<T>(&self, why: impl Into<String>) -> Option<T> {
        self.reject(why);
        None
    }

    /// The remaining size budget for compiled regexes.
    pub(crate) fn regex_bytes(&self) -> &'a Cell<usize> {
        &self.shared.regex_bytes
    }

    /// The value of this field, which must be set.
    pub(crate) fn require<T>(&self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.reject("must be set");
        }
        value
    }

    /// The text of this field, which must not be empty.
    pub(crate) fn require_text<'t>(&self, text: &'t str) -> Option<&'t str> {
        if text.is_empty() {
            return self.fail("must not be empty");
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
