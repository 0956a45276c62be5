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

/// A target with a reference count per stripe, for pickers that return it again and again.
pub struct StripedTarget(Striped<Arc<Stripe>>);

/// The references of one stripe: one cache line from the counts in front of it to its end, so that the counts of two
/// stripes are on different lines, whatever their alignment.
struct Stripe {
    target: Arc<PickTarget>,
    _rest: [u64; 5],
}

impl StripedTarget {
    /// Shares a target among picks.
    #[must_use]
    pub fn new(target: &Arc<PickTarget>) -> Self {
        Self(Striped::new(Stripe::new(target)))
    }

    /// A reference to the target, counted in the stripe of this thread.
    #[must_use]
    pub fn get(&self) -> TargetRef {
        TargetRef(Held::Striped(Arc::clone(self.0.own_or(|| Stripe::new(&self.0.first().target)))))
    }
}

impl Stripe {
    fn new(target: &Arc<PickTarget>) -> Arc<Self> {
        Arc::new(Self { target: Arc::clone(target), _rest: [0; 5] })
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
