//! Problems in files: what is wrong, and where.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Position {
    /// The beginning of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Location {
    /// The file, as it was named.
    pub file: Arc<str>,
    /// The position in it.
    #[serde(flatten)]
    pub position: Position,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.position.line, self.position.column)
    }
}

/// One problem of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The location of the problem.
    #[serde(flatten)]
    pub location: Location,
    /// The description of the problem.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// The problems found so far in one file.
#[derive(Debug)]
pub(crate) struct Problems {
    file: Arc<str>,
    pub(crate) found: Vec<Problem>,
}

impl Problems {
    pub(crate) fn of(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), found: Vec::new() }
    }

    pub(crate) fn location(&self, position: Position) -> Location {
        Location { file: Arc::clone(&self.file), position }
    }

    pub(crate) fn add(&mut self, at: Position, message: impl Into<String>) {
        self.found.push(Problem { location: self.location(at), message: message.into() });
    }

    /// Records a problem; returns `None`, the value of an invalid node.
    pub(crate) fn fail<T>(&mut self, at: Position, message: impl Into<String>) -> Option<T> {
        self.add(at, message);
        None
    }
}
