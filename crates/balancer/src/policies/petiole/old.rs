//! The members before an update, to be taken over by those after it.

use std::sync::Arc;

use super::Member;
use crate::api::Endpoint;

/// How far ahead to look for an endpoint that is not where it was.
const AHEAD: usize = 4;

/// Members that are taken in about the order in which they are: most updates move few.
pub(super) struct Old {
    members: Vec<Option<Member>>,
    /// The place after that of the last one taken.
    cursor: usize,
}

impl Old {
    pub(super) fn new(members: Vec<Member>) -> Self {
        Self { members: members.into_iter().map(Some).collect(), cursor: 0 }
    }

    /// Takes the member of an endpoint whose place is now `position`, if it is near to where it is expected. `None` says
    /// nothing: the member may be elsewhere.
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

    /// Takes the member at this place, if nobody did.
    pub(super) fn take(&mut self, place: usize) -> Option<Member> {
        let taken = self.members.get_mut(place)?.take();
        if taken.is_some() {
            self.cursor = place + 1;
        }
        taken
    }

    /// Those that nobody took.
    pub(super) fn left(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }
}

fn is_of(member: &Member, endpoint: &Arc<Endpoint>) -> bool {
    Arc::ptr_eq(&member.endpoint, endpoint) || member.endpoint.addresses == endpoint.addresses
}
