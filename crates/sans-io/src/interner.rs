//! [`Interner`]: one allocation for equal values that many owners have, such as the localities of a thousand clusters.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of values below which unused ones are not looked for.
const FEW: usize = 64;

/// A set of shared values. Clones share the set.
///
/// Values that nobody uses any more are forgotten when the set has doubled since it last forgot some.
pub struct Interner<T: ?Sized>(Arc<Mutex<Known<T>>>);

struct Known<T: ?Sized> {
    values: BTreeSet<Arc<T>>,
    /// The number of values at which unused ones are forgotten.
    full: usize,
}

impl<T: Ord + ?Sized> Interner<T> {
    /// The shared value that equals this one.
    #[must_use]
    pub fn share(&self, value: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        // The set is consistent even if a holder panicked: each change of it is one call.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = known.values.get(value.borrow()) {
            return Arc::clone(shared);
        }
        if known.values.len() >= known.full {
            known.values.retain(|value| Arc::strong_count(value) > 1);
            known.full = FEW.max(known.values.len() * 2);
        }
        let shared = value.into();
        known.values.insert(Arc::clone(&shared));
        shared
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Known { values: BTreeSet::new(), full: FEW })))
    }
}

impl<T: ?Sized> Clone for Interner<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized> PartialEq for Interner<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T: ?Sized> fmt::Debug for Interner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interner")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_allocation() {
        let names = Interner::<str>::default();
        let first = names.share("a");
        assert!(Arc::ptr_eq(&first, &names.clone().share(String::from("a"))));
        assert_eq!(&*names.share("b"), "b");
    }

    #[test]
    fn unused_values_are_forgotten() {
        let names = Interner::<str>::default();
        let kept = names.share("kept");
        for number in 0..10 * FEW {
            drop(names.share(number.to_string()));
        }
        let held = names.0.lock().unwrap().values.len();
        assert!(held <= FEW, "{held}");
        assert!(Arc::ptr_eq(&kept, &names.share("kept")));
    }
}
