//! Searches an old list for the items of its successor.

/// The number of items that may be removed in a row without losing track of those that follow.
const AHEAD: usize = 4;

/// A cursor in an old list, from which the items of a new one are taken in order. Most updates move few items, so each
/// is searched near the cursor only; one that moved further is not found, which costs the caller nothing but time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nearby {
    /// The position after the last item found.
    next: usize,
}

impl Nearby {
    /// The position in `old` of the first item ahead of the cursor that satisfies `is_same`.
    pub fn find_ahead<T>(&mut self, old: &[T], is_same: impl Fn(&T) -> bool) -> Option<usize> {
        let ahead = old.iter().skip(self.next).take(AHEAD).position(is_same)?;
        Some(self.move_past(self.next + ahead))
    }

    /// Like [`Self::find_ahead`]; also looks at `position`, where the item is in the new list.
    pub fn find<T>(&mut self, old: &[T], position: usize, is_same: impl Fn(&T) -> bool) -> Option<usize> {
        self.find_ahead(old, &is_same).or_else(|| {
            old.get(position).filter(|old| is_same(old))?;
            Some(self.move_past(position))
        })
    }

    /// Continues after `position`, where the caller has found an item. Returns `position`.
    pub fn move_past(&mut self, position: usize) -> usize {
        self.next = position + 1;
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_items_are_skipped_and_moved_ones_are_found_at_their_position() {
        let old = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut cursor = Nearby::default();
        let mut find = |position, item| cursor.find(&old, position, |old| *old == item);
        assert_eq!(find(0, 4), Some(3), "three were removed");
        assert_eq!(find(1, 9), None, "too far ahead");
        assert_eq!(find(2, 5), Some(4));
        assert_eq!(find(0, 1), Some(0), "behind the cursor, but at its own position");
        assert_eq!(find(3, 2), Some(1), "the cursor has followed");
        assert_eq!(cursor.move_past(7), 7);
        assert_eq!(cursor.find_ahead(&old, |old| *old == 9), Some(8));
        assert_eq!(cursor.find_ahead(&old, |_| true), None, "at the end");
    }
}
