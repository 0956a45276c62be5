//! Loom's atomics, with two differences.
//!
//! Loom takes SeqCst for AcqRel except in fences, so each SeqCst access comes with fences: all of them are in one order
//! then. (They order other accesses too, which real ones need not.)
//!
//! A store is a swap. Loom knows only in part which of two stores that do not know of each other is the later one, and
//! may let two compare-and-swaps succeed on the same value. With swaps all writes of an atomic are in the order in
//! which they are run, and all such orders are tried. (A swap does not end a release sequence, which a store does.)
//! Loads are free to return old values.

use loom::sync::atomic as unfenced;

pub use unfenced::{Ordering, fence};

fn fence_if_seq_cst(order: Ordering) {
    if order == Ordering::SeqCst {
        fence(Ordering::SeqCst);
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[doc = concat!("Like `std::sync::atomic::", stringify!($name), "`.")]
        #[derive(Debug, Default)]
        pub struct $name(unfenced::$name);

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub fn new(value: $value) -> Self {
                Self(unfenced::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                fence_if_seq_cst(order);
                self.0.load(order)
            }

            pub fn store(&self, value: $value, order: Ordering) {
                self.swap(value, order);
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.modify(order, |atomic| atomic.swap(value, order))
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.modify(success, |atomic| atomic.compare_exchange(current, new, success, failure))
            }

            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut current = self.load(fetch);
                while let Some(next) = f(current) {
                    match self.compare_exchange(current, next, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(other) => current = other,
                    }
                }
                Err(current)
            }

            fn modify<T>(&self, order: Ordering, modify: impl FnOnce(&unfenced::$name) -> T) -> T {
                fence_if_seq_cst(order);
                let result = modify(&self.0);
                fence_if_seq_cst(order);
                result
            }
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        #[allow(missing_docs, reason = "as in the standard library")]
        impl $name {
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.modify(order, |atomic| atomic.fetch_add(value, order))
            }

            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.modify(order, |atomic| atomic.fetch_sub(value, order))
            }

            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                self.modify(order, |atomic| atomic.fetch_max(value, order))
            }
        }
    };
}

atomic!(AtomicBool, bool);
integer!(AtomicU8, u8);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
