//! The members before an update, from which those after it are taken.

use std::sync::Arc;

use proxyless_sans_io::Nearby;

use super::Member;
use crate::api::Endpoint;

/// Members in their previous order.
pub(super) struct Old {
    members: Vec<Option<Member>>,
    cursor: Nearby,
}

impl Old {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Self { members: members.into_iter().map(Some).collect(), cursor: Nearby::default() }
    }

    /// Takes the member of an endpoint whose new position is `position`, if it is near its expected position. After
    /// `None` the member may be elsewhere.
    pub(super) fn take_near(&mut self, endpoint: &Arc<Endpoint>, position: usize) -> Option<Member> {
        let is_same =
            |old: &Option<Member>| old.as_ref().is_some_and(|member| has_addresses_of(member, endpoint));
        let place = self.cursor.find(&self.members, position, is_same)?;
        self.members.get_mut(place)?.take()
    }

    /// Takes the member at this position, unless it was taken.
    pub(super) fn take(&mut self, place: usize) -> Option<Member> {
        let taken = self.members.get_mut(place)?.take()?;
        self.cursor.move_past(place);
        Some(taken)
    }

    /// The members that were not taken.
    pub(super) fn left(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }
}

fn has_addresses_of(member: &Member, endpoint: &Arc<Endpoint>) -> bool {
    Arc::ptr_eq(&member.endpoint, endpoint) || member.endpoint.addresses == endpoint.addresses
}
