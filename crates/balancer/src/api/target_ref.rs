//! [`TargetRef`]: how a pick holds its target, without a reference count that all threads write.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{PickTarget, Striped};

/// A reference to the target of a pick.
#[derive(Clone)]
pub struct TargetRef(Held);

#[derive(Clone)]
enum Held {
    Shared(Arc<PickTarget>),
    Striped(Arc<Stripe>),
}

/// A target with one reference count per stripe, for pickers that return it again and again.
pub struct StripedTarget(Striped<Arc<Stripe>>);

/// The references of one stripe: one cache line from the counts in front of it to its end, so that the counts of two
/// stripes are on different lines, whatever their alignment.
struct Stripe {
    target: Arc<PickTarget>,
    _rest: [u64; 5],
}

impl StripedTarget {
    /// Allocates the references of all stripes.
    #[must_use]
    pub fn new(target: &Arc<PickTarget>) -> Self {
        Self(Striped::from_fn(|_| Arc::new(Stripe { target: Arc::clone(target), _rest: [0; 5] })))
    }

    /// A reference to the target, counted in the stripe of this thread.
    #[must_use]
    pub fn get(&self) -> TargetRef {
        TargetRef(Held::Striped(Arc::clone(self.0.own())))
    }
}

impl From<Arc<PickTarget>> for TargetRef {
    fn from(target: Arc<PickTarget>) -> Self {
        Self(Held::Shared(target))
    }
}

impl Deref for TargetRef {
    type Target = PickTarget;

    fn deref(&self) -> &PickTarget {
        match &self.0 {
            Held::Shared(target) => target,
            Held::Striped(stripe) => &stripe.target,
        }
    }
}

impl fmt::Debug for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
