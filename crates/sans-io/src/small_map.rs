//! A compact ordered map: a tree allocates room for eleven entries with the first, and half of it stays empty if keys come
//! in order.

use std::borrow::Borrow;

use crate::sorted::Sorted;

/// The maximum number of entries in one list.
const FEW: usize = 16;

/// An ordered map whose first entries take exactly the room that they need, and many not much more.
#[derive(Clone, Debug)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone, Debug)]
enum Entries<K, V> {
    /// Sorted by key.
    Few(Vec<(K, V)>),
    /// Boxed: most maps are never that large.
    Many(Box<Sorted<K, V>>),
}

use Entries::{Few, Many};

impl<K, V> SmallMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self(Few(Vec::new()))
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Few(few) => few.len(),
            Many(many) => many.len(),
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys and values, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let (few, many) = match &self.0 {
            Few(few) => (few.as_slice(), Default::default()),
            Many(many) => (Default::default(), many.chunks()),
        };
        few.iter().chain(many.iter().flatten()).map(|(key, value)| (key, value))
    }

    /// Keys and values, in key order.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        let (few, many) = match &mut self.0 {
            Few(few) => (few.as_mut_slice(), Default::default()),
            Many(many) => (Default::default(), many.chunks_mut()),
        };
        few.iter_mut().chain(many.iter_mut().flatten()).map(|(key, value)| (&*key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, in key order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, in key order.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    /// The value of this key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// The entry of this key.
    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let entry = match &self.0 {
            Few(few) => find(few, key).ok().and_then(|at| few.get(at)),
            Many(many) => many.find(key).ok().and_then(|place| many.at(place)),
        };
        entry.map(|(key, value)| (key, value))
    }

    /// The value of this key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Few(few) => find(few, key).ok().and_then(|at| few.get_mut(at)).map(|(_, value)| value),
            Many(many) => many.find(key).ok().and_then(|place| many.at_mut(place)),
        }
    }

    /// The entry of the first key that is not before this one.
    pub fn next_from<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let entry = match &self.0 {
            Few(few) => few.get(find(few, key).unwrap_or_else(|at| at)),
            Many(many) => many.next_from(key),
        };
        entry.map(|(key, value)| (key, value))
    }

    /// Keys and values from the first key that is not before this one, in key order.
    pub fn iter_mut_from<'a, Q: Ord + ?Sized>(
        &'a mut self,
        key: &Q,
    ) -> impl Iterator<Item = (&'a K, &'a mut V)> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let (few, many) = match &mut self.0 {
            Few(few) => {
                let at = find(few, key).unwrap_or_else(|at| at);
                (few.get_mut(at..).unwrap_or_default(), None)
            }
            Many(many) => (Default::default(), Some(many.iter_mut_from(key))),
        };
        few.iter_mut().chain(many.into_iter().flatten()).map(|(key, value)| (&*key, value))
    }

    /// Whether there is a value of this key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The value of this key, which `make` returns if there is none yet.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.make_room(&key);
        let value = match &mut self.0 {
            Few(few) => {
                let at = find(few, &key).unwrap_or_else(|at| {
                    few.reserve_exact(1);
                    few.insert(at, (key, make()));
                    at
                });
                few.get_mut(at).map(|(_, value)| value)
            }
            Many(many) => {
                let place = many.find(&key).unwrap_or_else(|place| many.insert_at(place, key, make()));
                many.at_mut(place)
            }
        };
        #[allow(clippy::expect_used, reason = "there is an entry at this place")]
        value.expect("an entry")
    }

    /// Sets the value of this key; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.get_mut(&key) {
            return Some(std::mem::replace(old, value));
        }
        self.get_or_insert_with(key, || value);
        None
    }

    /// Continues with chunks if the first list is full.
    fn make_room(&mut self, key: &K) {
        if let Few(few) = &mut self.0
            && few.len() == FEW
            && find(few, key).is_err()
        {
            self.0 = Many(Box::new(Sorted::of(std::mem::take(few))));
        }
    }

    /// Removes the value of this key.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes the entry of this key.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        match &mut self.0 {
            Few(few) => find(few, key).ok().map(|at| few.remove(at)),
            Many(many) => many.find(key).ok().and_then(|place| many.remove_at(place)),
        }
    }

    /// Removes the entries that do not satisfy `keep`.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        match &mut self.0 {
            Few(few) => few.retain_mut(|(key, value)| keep(key, value)),
            Many(many) => many.retain(keep),
        }
    }
}

/// The position of a key, or that at which it would be.
fn find<K: Ord + Borrow<Q>, V, Q: Ord + ?Sized>(few: &[(K, V)], key: &Q) -> Result<usize, usize> {
    few.binary_search_by(|(at, _)| at.borrow().cmp(key))
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SmallMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for SmallMap<K, V> {}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SmallMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_behaves_like_a_tree_with_few_entries_and_with_many() {
        for size in [0, 1, 3, FEW as u32, FEW as u32 + 1, 100] {
            let (mut small, mut tree) = (SmallMap::new(), BTreeMap::new());
            // All keys, in another order, and some twice.
            for key in (0..size).map(|at| at * 37 % size).chain(0..size / 2) {
                assert_eq!(small.insert(key, key + 1), tree.insert(key, key + 1));
            }
            *small.get_or_insert_with(0, || 7) += 1;
            *tree.entry(0).or_insert(7) += 1;
            let same = |small: &SmallMap<u32, u32>, tree: &BTreeMap<u32, u32>| {
                assert!(small.iter().eq(tree.iter()) && small.values().eq(tree.values()));
                assert!((0..=size).all(|key| small.get(&key) == tree.get(&key)));
                assert!((0..=size).all(|key| small.next_from(&key) == tree.range(key..).next()));
                assert_eq!((small.len(), small.is_empty()), (tree.len(), tree.is_empty()));
                assert_eq!(*small, tree.iter().map(|(key, value)| (*key, *value)).collect());
            };
            same(&small, &tree);
            assert_eq!(small.remove(&0), tree.remove(&0));
            assert_eq!(small.remove(&0), None);
            small.values_mut().chain(tree.values_mut()).for_each(|value| *value *= 2);
            small.retain(|key, _| key % 3 == 0);
            tree.retain(|key, _| key % 3 == 0);
            assert_eq!(small.get_mut(&3), tree.get_mut(&3));
            assert!((0..=size).all(|key| small.iter_mut_from(&key).eq(tree.range_mut(key..))));
            same(&small, &tree);
        }
    }

    #[test]
    fn few_entries_take_exactly_their_room() {
        let map: SmallMap<u32, u32> = (0..3).map(|key| (key, key)).collect();
        assert!(matches!(&map.0, Few(few) if few.capacity() == 3));
    }
}
