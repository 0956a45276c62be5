//! The path of an event from the root of the tree to the policy that it is for: one child index per level.

use std::sync::Arc;

use super::ChildIndex;

/// The destination of an event: the child at this level, and the rest of the path.
#[derive(Clone, Copy, Debug)]
pub struct TreePath<'a> {
    /// The last step, if it is not in `above`.
    leaf: Option<ChildIndex>,
    /// The earlier steps, in reverse order.
    above: &'a [ChildIndex],
}

impl<'a> TreePath<'a> {
    /// The child to pass the event to, with the rest of the path; `None` if the event is for this policy itself.
    #[must_use]
    pub fn next(self) -> Option<(ChildIndex, TreePath<'a>)> {
        match self.above.split_last() {
            Some((&child, above)) => Some((child, TreePath { leaf: self.leaf, above })),
            None => self.leaf.map(|leaf| (leaf, TreePath { leaf: None, above: &[] })),
        }
    }
}

/// A stored path. Paths to children of the same policy share all but the last step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedTreePath {
    leaf: Option<ChildIndex>,
    above: Arc<[ChildIndex]>,
}

impl SharedTreePath {
    /// The path from the root.
    #[must_use]
    pub fn path(&self) -> TreePath<'_> {
        TreePath { leaf: self.leaf, above: &self.above }
    }
}

/// A path under construction: the leaf's index first; each level above adds its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePathBuf(Vec<ChildIndex>);

impl TreePathBuf {
    /// Adds the index of the caller at the next level up.
    pub fn push(&mut self, child: ChildIndex) {
        if self.0.capacity() == 0 {
            // The usual depth of a tree.
            self.0.reserve_exact(12);
        }
        self.0.push(child);
    }

    /// The finished path; shares memory with `like` if that leads to a sibling.
    #[must_use]
    pub fn share(&self, like: Option<&SharedTreePath>) -> SharedTreePath {
        let (leaf, above) = match self.0.split_first() {
            Some((&leaf, above)) => (Some(leaf), above),
            None => (None, &[][..]),
        };
        let above = match like {
            Some(like) if *like.above == *above => Arc::clone(&like.above),
            _ => above.into(),
        };
        SharedTreePath { leaf, above }
    }

    /// The path from the root.
    #[must_use]
    pub fn path(&self) -> TreePath<'_> {
        TreePath { leaf: None, above: &self.0 }
    }
}
