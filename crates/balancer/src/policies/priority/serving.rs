//! The serving child, for inspection.

use std::sync::Arc;

use proxyless_sans_io::Time;

use super::config::PriorityConfig;
use crate::api::{ConnectivityState, PolicyEvent, StateChange};

/// The child that served last, and how it came to serve.
#[derive(Default)]
pub(super) struct Serving {
    name: Option<Arc<str>>,
    /// Boxed: few clusters ever change their priority.
    since: Option<Box<Since>>,
}

struct Since {
    at: Time,
    reason: String,
}

impl Serving {
    /// A READY child serves. Returns an event if it is a different one than before, or not the first of the list.
    pub(super) fn by(&mut self, name: &Arc<str>, config: &PriorityConfig, now: Time) -> Option<PolicyEvent> {
        let place = |name: &Arc<str>| config.priorities.iter().position(|known| known == name);
        let before = match self.name.replace(Arc::clone(name)) {
            Some(before) if before == *name => return None,
            Some(before) => before,
            // All children above the first serving one have failed, or timed out.
            None => Arc::clone(config.priorities.get(place(name)?.checked_sub(1)?)?),
        };
        // A child that left the configuration did not fail.
        let is_lower = place(&before)? < place(name)?;
        let (cluster, from, to) = (Arc::clone(&config.cluster), config.label(&before), config.label(name));
        let how = if is_lower { "failed over" } else { "moved up" };
        self.since = Some(Box::new(Since { at: now, reason: format!("{how} from {from}") }));
        Some(match is_lower {
            true => PolicyEvent::FailedOver { cluster, from, to },
            false => PolicyEvent::MovedUp { cluster, from, to },
        })
    }

    /// The change that made it serve, unless it was the first.
    pub(super) fn change(&self, now: Time) -> Option<StateChange> {
        let Since { at, reason } = self.since.as_deref()?;
        Some(StateChange { age: now.since(*at), from: ConnectivityState::Ready, reason: reason.clone() })
    }
}
