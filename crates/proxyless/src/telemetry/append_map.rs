//! A map that grows and never shrinks, so that it is read without locks and reference counts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of lists that the entries are spread over.
const LISTS: usize = 256;

/// Values by name.
pub(super) struct AppendMap<V> {
    lists: Box<[Link<V>]>,
    len: AtomicUsize,
}

/// The entry at this place of a list; absent at its end.
type Link<V> = OnceLock<Box<Entry<V>>>;

struct Entry<V> {
    key: Box<str>,
    value: V,
    next: Link<V>,
}

impl<V> AppendMap<V> {
    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let mut link = self.list(key)?;
        while let Some(entry) = link.get() {
            if *entry.key == *key {
                return Some(&entry.value);
            }
            link = &entry.next;
        }
        None
    }

    /// The value of the key, which `make` returns if there is none yet.
    pub(super) fn get_or_insert(&self, key: &str, make: impl Fn() -> V) -> Option<&V> {
        let new = || {
            self.len.fetch_add(1, Ordering::Relaxed);
            Box::new(Entry { key: key.into(), value: make(), next: OnceLock::new() })
        };
        let mut link = self.list(key)?;
        loop {
            // Another thread may have added an entry meanwhile.
            let entry = link.get_or_init(new);
            if *entry.key == *key {
                return Some(&entry.value);
            }
            link = &entry.next;
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// There is always one.
    fn list(&self, key: &str) -> Option<&Link<V>> {
        self.lists.get(list_number(key))
    }
}

/// The list of a key, by its length and its end: paths of methods differ there. Cheaper than a hash of all bytes; the
/// keys of a list are compared anyway, and there are not many.
fn list_number(key: &str) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let end = key.as_bytes().last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    let mixed = (end ^ key.len() as u64).wrapping_mul(FACTOR);
    // The highest bits depend on all others.
    (mixed >> 32) as usize % LISTS
}

impl<V> Default for AppendMap<V> {
    fn default() -> Self {
        Self { lists: (0..LISTS).map(|_| OnceLock::new()).collect(), len: AtomicUsize::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_insert_the_same_keys_see_the_same_values() {
        // More keys than lists.
        let keys: Vec<_> = (0..3 * LISTS).map(|key| key.to_string()).collect();
        let map = AppendMap::default();
        let seen: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let insert = |thread: usize| {
                let (keys, map) = (&keys, &map);
                move || keys.iter().map(|key| *map.get_or_insert(key, || thread).unwrap()).collect()
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(insert(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let [first, others @ ..] = &*seen else { panic!("no threads") };
        assert!(others.iter().all(|other| other == first));
        assert_eq!(map.len(), keys.len());
        let found: Vec<_> = keys.iter().map(|key| *map.get(key).unwrap()).collect();
        assert_eq!(found, *first);
        assert!(map.get("none").is_none());
    }
}
