//! Limbo: unsubscribed resources, which are kept while the server may have missed the unsubscription. It would not resend
//! one that is subscribed again.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::Time;

use super::Cache;
use crate::client::ads_stream::Doubt;
use crate::client::authorities::AuthorityId;
use crate::client::resource_state::Standing;
use crate::resource::ResourceType;

/// The longest time for which an unsubscribed resource is kept and updated. Responses may follow each other so closely that
/// each request of the type may have been crossed by one. But every ACK repeats the unsubscription, so the server has
/// read one of them by then, unless answers are still unsent.
pub(super) const LIMBO: Duration = Duration::from_secs(30);

impl Cache {
    /// Whether the resource is unwatched, and the request without it was built.
    pub(super) fn is_in_limbo(&self, of: ResourceType, name: &str) -> bool {
        self.get(of, name).is_some_and(|state| state.watchers.is_empty() && state.limbo.is_some())
    }

    /// A resource in limbo is watched again. Its value is only used if the server may have missed the unsubscription.
    pub(super) fn revive(&mut self, of: ResourceType, name: &Arc<str>, doubt: Option<Doubt>) {
        let standing = match doubt {
            Some(Doubt::Settling { until }) => {
                self.resubscribed.insert((of, Arc::clone(name)), until);
                Standing::Resubscribed
            }
            Some(Doubt::Crossed) => Standing::Doubtful,
            None => {
                self.drop_data(of, name);
                Standing::Sure
            }
        };
        if let Some(state) = self.get_mut(of, name) {
            state.revive(standing);
        }
    }

    /// A response of the type has arrived: it may have crossed the unsubscriptions of resources that were subscribed again
    /// a moment ago, of the authorities that fit.
    pub(in crate::client) fn crossed(
        &mut self,
        of: ResourceType,
        listened: Duration,
        fits: impl Fn(AuthorityId) -> bool,
    ) {
        let Self { types, resubscribed, .. } = self;
        resubscribed.retain(|(kind, name), until| {
            if *kind != of {
                return true;
            }
            let state = types.get_mut(kind).and_then(|of_type| of_type.resources.get_mut(name));
            let Some(state) = state.filter(|state| state.standing == Standing::Resubscribed) else {
                return false;
            };
            if !fits(state.authority) {
                return true;
            }
            if listened < *until {
                state.standing = Standing::Doubtful;
            }
            false
        });
    }

    /// Forgets the resources in limbo that fit: the server has read a request without them.
    pub(in crate::client) fn forget_unsubscribed(
        &mut self,
        of: ResourceType,
        fits: impl Fn(AuthorityId, &Arc<str>) -> bool,
    ) {
        let in_limbo = self.limbo.iter().filter(|(_, kind, name)| *kind == of && self.is_in_limbo(of, name));
        let seen = in_limbo
            .filter(|(_, _, name)| self.get(of, name).is_some_and(|state| fits(state.authority, name)));
        let seen: Vec<_> = seen.map(|(_, _, name)| Arc::clone(name)).collect();
        seen.iter().for_each(|name| self.remove(of, name));
    }

    /// Removes the resources whose limbo has expired. The limbo of a type with unsent answers is extended: the server
    /// ignores requests with stale nonces, so it may not have seen an unsubscription yet.
    pub(in crate::client) fn end_limbo(
        &mut self,
        now: Time,
        has_unsent: impl Fn(AuthorityId, ResourceType) -> bool,
    ) {
        while let Some((until, ..)) = self.limbo.first() {
            if *until > now {
                return;
            }
            let Some((_, resource_type, name)) = self.limbo.pop_first() else { return };
            match self.get_mut(resource_type, &name) {
                Some(state) if state.watchers.is_empty() && has_unsent(state.authority, resource_type) => {
                    state.limbo = Some(now + LIMBO);
                    self.limbo.insert((now + LIMBO, resource_type, name));
                }
                Some(state) if state.watchers.is_empty() => self.remove(resource_type, &name),
                Some(state) => state.limbo = None,
                None => {}
            }
        }
    }
}
