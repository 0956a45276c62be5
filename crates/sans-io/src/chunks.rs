//! A list whose copies share what they have in common.

use std::fmt;
use std::sync::Arc;

/// The number of elements in each chunk but the last one.
const CHUNK: usize = 64;

/// A list in chunks. A copy costs a pointer per chunk, a changed element the copy of its chunk, and a comparison of
/// two versions skips the chunks that they share.
pub struct Chunks<T>(Vec<Arc<[T]>>);

impl<T> Chunks<T> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK + last.len())
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The element at a position.
    #[must_use]
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at / CHUNK)?.get(at % CHUNK)
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.0.iter().flat_map(|chunk| chunk.iter())
    }

    /// The position of an element in an ordered list, as with [`slice::binary_search_by`].
    ///
    /// # Errors
    /// If there is none: the position at which it could be inserted.
    pub fn binary_search_by(
        &self,
        mut compare: impl FnMut(&T) -> std::cmp::Ordering,
    ) -> Result<usize, usize> {
        // The last chunk that does not begin behind the element.
        let starts = |chunk: &Arc<[T]>| chunk.first().is_some_and(|first| compare(first).is_le());
        let chunk = self.0.partition_point(starts).saturating_sub(1);
        let place = self.0.get(chunk).map_or(Err(0), |elements| elements.binary_search_by(compare));
        place.map(|at| chunk * CHUNK + at).map_err(|at| chunk * CHUNK + at)
    }

    /// The positions in chunks that two versions do not share, as far as both have them.
    pub fn differences(&self, other: &Self) -> impl Iterator<Item = usize> {
        let chunks = self.0.iter().zip(&other.0).enumerate();
        chunks.filter(|(_, (a, b))| !Arc::ptr_eq(a, b)).flat_map(|(at, (a, b))| {
            let start = at * CHUNK;
            start..start + a.len().min(b.len())
        })
    }
}

impl<T: Clone> Chunks<T> {
    /// Replaces the element at a position, if there is one.
    pub fn set(&mut self, at: usize, element: T) {
        if let Some(chunk) = self.0.get_mut(at / CHUNK)
            && let Some(place) = Arc::make_mut(chunk).get_mut(at % CHUNK)
        {
            *place = element;
        }
    }
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Clone for Chunks<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> FromIterator<T> for Chunks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        let mut chunks = Vec::new();
        loop {
            let mut chunk = Vec::with_capacity(elements.size_hint().0.clamp(4, CHUNK));
            chunk.extend(elements.by_ref().take(CHUNK));
            if chunk.is_empty() {
                return Self(chunks);
            }
            chunks.push(chunk.into());
        }
    }
}

impl<T: PartialEq> PartialEq for Chunks<T> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<[T]>, &Arc<[T]>)| Arc::ptr_eq(a, b) || a == b;
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl<T: fmt::Debug> fmt::Debug for Chunks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 6] = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK];

    #[test]
    fn list_has_its_elements_in_order() {
        for size in SIZES {
            let list: Chunks<usize> = (0..size).collect();
            assert_eq!((list.len(), list.is_empty()), (size, size == 0));
            assert!(list.iter().copied().eq(0..size));
            assert!((0..size).all(|at| list.get(at) == Some(&at)) && list.get(size).is_none());
        }
    }

    #[test]
    fn search_finds_elements_and_places() {
        for size in SIZES {
            let list: Chunks<usize> = (0..size).map(|n| n * 2 + 1).collect();
            let plain: Vec<usize> = list.iter().copied().collect();
            for wanted in 0..=size * 2 + 1 {
                let found = list.binary_search_by(|n| n.cmp(&wanted));
                assert_eq!(found, plain.binary_search(&wanted), "{wanted} of {size}");
            }
        }
    }

    #[test]
    fn changed_copy_shares_the_other_chunks() {
        let old: Chunks<usize> = (0..3 * CHUNK).collect();
        let mut new = old.clone();
        new.set(CHUNK + 1, 0);
        new.set(3 * CHUNK, 0);
        assert_eq!(
            (old.get(CHUNK + 1), new.get(CHUNK + 1), new.len()),
            (Some(&(CHUNK + 1)), Some(&0), old.len())
        );
        assert!(new.differences(&old).eq(CHUNK..2 * CHUNK));
        assert!(new != old);
        new.set(CHUNK + 1, CHUNK + 1);
        assert_eq!(new, old);
        assert!(new.differences(&(0..1).collect()).eq(0..1));
    }
}
