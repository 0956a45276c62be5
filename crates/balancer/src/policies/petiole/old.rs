//! The members before an update, from which those after it are taken.

use std::sync::Arc;

use super::Member;
use crate::api::Endpoint;

/// The distance to search for an endpoint that moved.
const AHEAD: usize = 4;

/// Members in their previous order: most updates move few.
pub(super) struct Old {
    members: Vec<Option<Member>>,
    /// The position after the last one taken.
    cursor: usize,
}

impl Old {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Self { members: members.into_iter().map(Some).collect(), cursor: 0 }
    }

    /// Takes the member of an endpoint whose new position is `position`, if it is near its expected position. After
    /// `None` the member may be elsewhere.
    pub(super) fn take_near(&mut self, endpoint: &Arc<Endpoint>, position: usize) -> Option<Member> {
        let places = (self.cursor..self.cursor + AHEAD).chain([position]);
        for place in places {
            let Some(found) = self.members.get_mut(place) else { continue };
            if let Some(member) = found.take_if(|member| is_of(member, endpoint)) {
                self.cursor = place + 1;
                return Some(member);
            }
        }
        None
    }

    /// Takes the member at this position, unless it was taken.
    pub(super) fn take(&mut self, place: usize) -> Option<Member> {
        let taken = self.members.get_mut(place)?.take();
        if taken.is_some() {
            self.cursor = place + 1;
        }
        taken
    }

    /// The members that were not taken.
    pub(super) fn left(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }
}

fn is_of(member: &Member, endpoint: &Arc<Endpoint>) -> bool {
    Arc::ptr_eq(&member.endpoint, endpoint) || member.endpoint.addresses == endpoint.addresses
}
