//! Many entries in key order, densely: the leaves of a tree are half empty if keys come in order, as ids do.

use std::borrow::Borrow;

/// The maximum number of entries of a chunk.
const FULL: usize = 64;

/// Entries in key order, in chunks of up to [`FULL`].
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V> {
    /// None is empty, and no two neighbours would fit into half a chunk.
    chunks: Vec<Vec<(K, V)>>,
    len: usize,
}

/// The place of an entry: its chunk, and its position there.
type Place = (usize, usize);

impl<K, V> Sorted<K, V> {
    /// Of entries in key order, at most one chunk.
    pub(crate) fn of(entries: Vec<(K, V)>) -> Self {
        let len = entries.len();
        Self { chunks: if entries.is_empty() { Vec::new() } else { vec![entries] }, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entries, a chunk at a time.
    pub(crate) fn chunks(&self) -> &[Vec<(K, V)>] {
        &self.chunks
    }

    /// The entries, a chunk at a time.
    pub(crate) fn chunks_mut(&mut self) -> &mut [Vec<(K, V)>] {
        &mut self.chunks
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for mut chunk in std::mem::take(&mut self.chunks) {
            chunk.retain_mut(|(key, value)| keep(key, value));
            match self.chunks.last_mut() {
                Some(last) if last.len() + chunk.len() <= FULL / 2 => last.append(&mut chunk),
                _ if chunk.is_empty() => {}
                _ => self.chunks.push(chunk),
            }
        }
        self.len = self.chunks.iter().map(Vec::len).sum();
    }

    pub(crate) fn at(&self, (chunk, at): Place) -> Option<&(K, V)> {
        self.chunks.get(chunk)?.get(at)
    }

    pub(crate) fn at_mut(&mut self, (chunk, at): Place) -> Option<&mut V> {
        self.chunks.get_mut(chunk)?.get_mut(at).map(|(_, value)| value)
    }

    /// Inserts an entry at the place that [`Self::find`] returned for its key; returns its place.
    pub(crate) fn insert_at(&mut self, place: Place, key: K, value: V) -> Place {
        self.len += 1;
        let (mut number, mut at) = place;
        let next = self.chunks.get(number + 1).map_or(FULL, Vec::len);
        match self.chunks.get_mut(number) {
            // Keys in order fill their chunks, even if there are greater keys: the next key belongs behind this one.
            Some(chunk) if at == FULL => {
                debug_assert_eq!(chunk.len(), FULL);
                (number, at) = (number + 1, 0);
                if next > FULL / 2 {
                    self.chunks.insert(number, Vec::with_capacity(FULL / 4));
                }
            }
            Some(chunk) if chunk.len() >= FULL => {
                let upper = chunk.split_off(FULL / 2);
                self.chunks.insert(number + 1, upper);
                if at > FULL / 2 {
                    (number, at) = (number + 1, at - FULL / 2);
                }
            }
            Some(_) => {}
            None => self.chunks.push(Vec::with_capacity(FULL / 4)),
        }
        if let Some(chunk) = self.chunks.get_mut(number) {
            chunk.insert(at, (key, value));
        }
        (number, at)
    }

    /// Removes the entry at a place.
    pub(crate) fn remove_at(&mut self, (number, at): Place) -> Option<(K, V)> {
        let chunk = self.chunks.get_mut(number).filter(|chunk| at < chunk.len())?;
        let removed = chunk.remove(at);
        self.len -= 1;
        if chunk.len() <= chunk.capacity() / 4 {
            chunk.shrink_to(chunk.len() * 2);
        }
        if chunk.is_empty() {
            self.chunks.remove(number);
        } else {
            self.merge_with_next(number);
            if let Some(previous) = number.checked_sub(1) {
                self.merge_with_next(previous);
            }
        }
        Some(removed)
    }

    fn merge_with_next(&mut self, number: usize) {
        let length = |number: usize| self.chunks.get(number).map(Vec::len);
        let fits = length(number).zip(length(number + 1)).is_some_and(|(a, b)| a + b <= FULL / 2);
        if fits {
            let mut next = self.chunks.remove(number + 1);
            if let Some(chunk) = self.chunks.get_mut(number) {
                chunk.append(&mut next);
            }
        }
    }
}

impl<K, V> Sorted<K, V> {
    /// The entry of the first key that is not before this one.
    pub(crate) fn next_from<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&(K, V)>
    where
        K: Ord + Borrow<Q>,
    {
        let (number, at) = self.find(key).unwrap_or_else(|place| place);
        self.at((number, at)).or_else(|| self.at((number + 1, 0)))
    }

    /// The entries from the first key that is not before this one.
    pub(crate) fn iter_mut_from<'a, Q: Ord + ?Sized>(
        &'a mut self,
        key: &Q,
    ) -> impl Iterator<Item = &'a mut (K, V)> + use<'a, K, V, Q>
    where
        K: Ord + Borrow<Q>,
    {
        let (number, at) = self.find(key).unwrap_or_else(|place| place);
        self.chunks.iter_mut().skip(number).flatten().skip(at)
    }

    /// The place of a key, or that at which it would be.
    pub(crate) fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Ord + Borrow<Q>,
    {
        let starts_before =
            |chunk: &Vec<(K, V)>| chunk.first().is_some_and(|(first, _)| first.borrow() <= key);
        let number = self.chunks.partition_point(starts_before).saturating_sub(1);
        let chunk = self.chunks.get(number).map_or(&[][..], Vec::as_slice);
        let found = chunk.binary_search_by(|(at, _)| at.borrow().cmp(key));
        found.map(|at| (number, at)).map_err(|at| (number, at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Rng;

    fn check(sorted: &Sorted<u64, u64>, tree: &BTreeMap<u64, u64>) {
        assert!(sorted.chunks.iter().flatten().map(|(key, value)| (key, value)).eq(tree.iter()));
        assert_eq!(sorted.len, tree.len());
        assert!(sorted.chunks.iter().all(|chunk| (1..=FULL).contains(&chunk.len())));
        assert!(sorted.chunks.windows(2).all(|two| two[0].len() + two[1].len() > FULL / 2));
    }

    fn insert(sorted: &mut Sorted<u64, u64>, key: u64) {
        if let Err(place) = sorted.find(&key) {
            let place = sorted.insert_at(place, key, key * 2);
            assert_eq!(sorted.at(place), Some(&(key, key * 2)));
        }
    }

    #[test]
    fn it_behaves_like_a_tree() {
        let mut rng = Rng::new(1);
        for keys in [10, 100, 1000] {
            let (mut sorted, mut tree) = (Sorted::of(Vec::new()), BTreeMap::new());
            for step in 0..10_000 {
                let key = rng.below(keys);
                // Grows and shrinks by turns.
                if rng.below(10) < if step % 4_000 < 2_000 { 8 } else { 2 } {
                    insert(&mut sorted, key);
                    tree.entry(key).or_insert(key * 2);
                } else {
                    let removed = sorted.find(&key).ok().and_then(|place| sorted.remove_at(place));
                    assert_eq!(removed, tree.remove_entry(&key));
                }
                check(&sorted, &tree);
            }
            sorted.retain(|key, _| key % 7 == 0);
            tree.retain(|key, _| key % 7 == 0);
            check(&sorted, &tree);
        }
    }

    #[test]
    fn keys_in_order_leave_little_room_unused() {
        let mut sorted = Sorted::of(Vec::new());
        (0..1000).for_each(|key| insert(&mut sorted, key));
        let room: usize = sorted.chunks.iter().map(Vec::capacity).sum();
        assert!(room < 1000 + FULL, "{room}");
        // Below the keys that are there, as well.
        let mut below = Sorted::of((0..64).map(|key| (key + 10_000, 0)).collect());
        (0..1000).for_each(|key| insert(&mut below, key));
        let room: usize = below.chunks.iter().map(Vec::capacity).sum();
        assert!(room < 1064 + FULL, "{room}");
        for key in 0..990 {
            let place = sorted.find(&key).ok();
            assert!(place.and_then(|place| sorted.remove_at(place)).is_some());
        }
        let room: usize = sorted.chunks.iter().map(Vec::capacity).sum();
        assert!(room <= 40, "{room}");
    }
}
