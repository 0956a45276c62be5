//! The children of a policy that has several.

use std::borrow::Borrow;
use std::sync::Arc;

use proxyless_sans_io::SmallMap;

use super::child::ChildIndices;
use super::{Child, ChildIndex, PolicyConfig};

/// The children of a policy, by a key that the policy chooses. Each has a payload of type `T`.
pub struct Children<K, T = ()> {
    /// Boxed, because insertions and removals move entries.
    by_key: SmallMap<K, Box<ChildEntry<T>>>,
    /// The keys by the index used in paths.
    keys: SmallMap<ChildIndex, K>,
    indices: ChildIndices,
}

/// A child and the payload that its policy keeps with it.
pub struct ChildEntry<T> {
    /// The child.
    pub child: Child,
    /// The payload.
    pub data: T,
}

impl<K, T> Default for Children<K, T> {
    fn default() -> Self {
        Self { by_key: SmallMap::new(), keys: SmallMap::new(), indices: ChildIndices::default() }
    }
}

impl<K: Ord + Clone, T> Children<K, T> {
    /// The child of this key, if there is one.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&ChildEntry<T>>
    where
        K: Borrow<Q>,
    {
        self.by_key.get(key).map(|entry| &**entry)
    }

    /// The child of this key, if there is one.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut ChildEntry<T>>
    where
        K: Borrow<Q>,
    {
        self.by_key.get_mut(key).map(|entry| &mut **entry)
    }

    /// The child with this index, if it still exists.
    pub fn at(&mut self, index: ChildIndex) -> Option<&mut ChildEntry<T>> {
        self.by_key.get_mut(self.keys.get(&index)?).map(|entry| &mut **entry)
    }

    /// The child of this key, built from `config` with the payload `data` if there is none.
    pub fn get_or_insert_with(
        &mut self,
        key: K,
        config: &Arc<dyn PolicyConfig>,
        data: impl FnOnce() -> T,
    ) -> &mut ChildEntry<T> {
        let Self { by_key, keys, indices } = self;
        let name = key.clone();
        by_key.get_or_insert_with(key, || {
            let index = indices.assign();
            keys.insert(index, name);
            Box::new(ChildEntry { child: Child::new(index, config), data: data() })
        })
    }

    /// Removes a child together with its subchannels, timers and signals.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<ChildEntry<T>>
    where
        K: Borrow<Q>,
    {
        let removed = self.by_key.remove(key)?;
        self.keys.remove(&removed.child.index());
        Some(*removed)
    }

    /// Removes the children whose keys do not satisfy `keep`, and returns them. The caller drops them after their
    /// successors hold the connections that both use.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) -> Vec<ChildEntry<T>> {
        let removed: Vec<K> = self.by_key.keys().filter(|key| !keep(key)).cloned().collect();
        removed.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Keys and children, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &ChildEntry<T>)> {
        self.by_key.iter().map(|(key, entry)| (key, &**entry))
    }

    /// Keys and children, in key order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut ChildEntry<T>)> {
        self.by_key.iter_mut().map(|(key, entry)| (key, &mut **entry))
    }

    /// The children, in key order.
    pub fn values(&self) -> impl Iterator<Item = &ChildEntry<T>> {
        self.by_key.values().map(|entry| &**entry)
    }

    /// The number of children.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are no children.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}
