//! The common part of petiole policies: one `pick_first` child per endpoint, kept across updates while the endpoint has
//! the same set of addresses, and the counts of the children's states.
//!
//! A petiole is the stalk between a leaf and its branch: gRFC A61 calls the policies right above the leaves
//! (pick_first) petiole policies. Here they are ring_hash and those built on [`Spread`]. There may be very many endpoints, so a
//! [`Member`] is smaller than a [`Child`](crate::api::Child), and a member whose endpoint did not move costs a pointer
//! comparison.

mod balance;
mod counts;
mod key;
mod member;
mod old;
mod spread;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use proxyless_sans_io::{SmallMap, Time};

pub use self::balance::{Balance, Balanced, ReadyEndpoint};
pub(crate) use self::counts::StateCounts;
pub(crate) use self::key::EndpointKey;
pub(crate) use self::member::Member;
use self::old::Old;
pub(crate) use self::spread::{Applied, Spread, SpreadPicker, SpreadPolicy};
use crate::api::{
    ChildIndex, ChildIndices, ConnectivityState, Cx, Endpoint, Endpoints, Policy as _, PolicyView,
    QueuePicker, TreeEvent, TreePath,
};

/// The policy by which children connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connect {
    /// At once, and again whenever they become IDLE; a child in TRANSIENT_FAILURE counts as such until it is READY.
    Always,
    /// On [`Petiole::connect`]: a child counts as IDLE before that, and with its own state afterwards.
    OnDemand,
}

/// The children of a petiole policy, in endpoint order.
pub(crate) struct Petiole {
    connect: Connect,
    members: Vec<Member>,
    /// The members by identity across updates.
    by_key: SmallMap<EndpointKey, ChildIndex>,
    /// The positions of the members by child index, sorted.
    places: Vec<(ChildIndex, u32)>,
    counts: StateCounts,
    indices: ChildIndices,
    /// The picker of members whose child has not published yet.
    queue: Arc<QueuePicker>,
}

/// A change published by a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The child's position in [`Petiole::members`].
    pub(crate) position: usize,
    /// The previous state in the aggregation.
    pub(crate) was: ConnectivityState,
    /// The new state in the aggregation.
    pub(crate) now: ConnectivityState,
}

impl Change {
    /// Whether a picker over the READY children must be rebuilt.
    pub(crate) fn touches_ready(&self) -> bool {
        self.was == ConnectivityState::Ready || self.now == ConnectivityState::Ready
    }
}

impl Petiole {
    /// Creates a petiole without children.
    pub(crate) fn new(connect: Connect) -> Self {
        Self {
            connect,
            members: Vec::new(),
            by_key: SmallMap::new(),
            places: Vec::new(),
            counts: StateCounts::default(),
            indices: ChildIndices::default(),
            queue: QueuePicker::new(),
        }
    }

    /// The children, in the endpoint order of the last update.
    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The child with this index, if it still exists.
    pub(crate) fn member(&self, index: ChildIndex) -> Option<&Member> {
        self.members.get(self.place(index)?)
    }

    /// The number of children in each state.
    pub(crate) fn counts(&self) -> &StateCounts {
        &self.counts
    }

    /// Creates a child for each new endpoint, drops those of removed endpoints, and updates the rest. Of endpoints with
    /// the same addresses only the first is used. Policies add resolution notes to their errors themselves.
    ///
    /// An endpoint whose position is unchanged costs a pointer comparison.
    pub(crate) fn update(&mut self, endpoints: &Endpoints, cx: &mut dyn Cx) {
        let mut old = Old::new(std::mem::take(&mut self.members));
        let mut members = Vec::with_capacity(endpoints.count());
        let first_new = self.indices.next();
        endpoints.flatten(&mut |endpoint| {
            let kept = old.take_near(endpoint, members.len());
            let mut member = match kept {
                Some(member) => member,
                // A61: the order of addresses is not part of an endpoint's identity.
                None => match self.name(endpoint) {
                    Named::New(index) => self.fresh(index, endpoint, cx),
                    Named::Known(index) if index >= first_new => return,
                    Named::Known(index) => match self.place(index).and_then(|place| old.take(place)) {
                        Some(member) => member,
                        None => return,
                    },
                },
            };
            member.renew(endpoint, cx);
            member.look(self.connect, cx);
            members.push(member);
        });
        for gone in old.left() {
            self.by_key.remove(&EndpointKey::of(gone.endpoint()));
        }
        self.set_members(members);
    }

    /// Passes an event to its child. `None` if it is the policy's own, if the child no longer exists, or if it
    /// published nothing.
    pub(crate) fn on_event(
        &mut self,
        path: TreePath<'_>,
        event: TreeEvent<'_>,
        cx: &mut dyn Cx,
    ) -> Option<Change> {
        let (index, rest) = path.next()?;
        let place = self.place(index)?;
        self.members.get_mut(place)?.call(cx, |child, cx| child.on_event(rest, event, cx));
        self.changed(place, cx)
    }

    /// Makes a child connect if it is IDLE.
    pub(crate) fn connect(&mut self, index: ChildIndex, cx: &mut dyn Cx) -> Option<Change> {
        let place = self.place(index)?;
        let member = self.members.get_mut(place)?;
        if member.is_started() {
            member.call(cx, |child, cx| child.exit_idle(cx));
        } else {
            member.start(cx);
        }
        self.changed(place, cx)
    }

    /// Describes the endpoints, without their pick_first policies, which would add nothing.
    pub(crate) fn describe(&self, now: Time) -> PolicyView {
        let endpoints = self.members.iter().map(|member| member.describe(now)).collect();
        PolicyView { endpoints, ..PolicyView::default() }
    }

    /// The index of an endpoint; a new one if none has the same addresses.
    fn name(&mut self, endpoint: &Endpoint) -> Named {
        let fresh = self.indices.next();
        let index = *self.by_key.get_or_insert_with(EndpointKey::of(endpoint), || self.indices.assign());
        if index == fresh { Named::New(index) } else { Named::Known(index) }
    }

    fn fresh(&self, index: ChildIndex, endpoint: &Arc<Endpoint>, cx: &mut dyn Cx) -> Member {
        let mut member = Member::new(index, Arc::clone(endpoint), &self.queue);
        if self.connect == Connect::Always {
            member.start(cx);
        }
        member
    }

    fn set_members(&mut self, members: Vec<Member>) {
        self.members = members;
        self.counts = StateCounts::default();
        self.places.clear();
        self.places.reserve_exact(self.members.len());
        // There are no more members than indices, which have the same width.
        for (place, member) in (0..).zip(&self.members) {
            *self.counts.of(member.state()) += 1;
            self.places.push((member.index(), place));
        }
        // Indices are assigned in order, so they are mostly sorted.
        self.places.sort_unstable();
    }

    fn place(&self, index: ChildIndex) -> Option<usize> {
        let at = self.places.binary_search_by_key(&index, |&(index, _)| index).ok()?;
        self.places.get(at).map(|&(_, place)| place as usize)
    }

    /// Reads the output of the child at this position.
    fn changed(&mut self, position: usize, cx: &mut dyn Cx) -> Option<Change> {
        let member = self.members.get_mut(position)?;
        let was = member.state();
        if !member.look(self.connect, cx) {
            return None;
        }
        let now = member.state();
        *self.counts.of(was) -= 1;
        *self.counts.of(now) += 1;
        Some(Change { position, was, now })
    }
}

/// The index of an endpoint.
enum Named {
    /// Newly assigned.
    New(ChildIndex),
    /// That of an earlier endpoint, in this update or the last.
    Known(ChildIndex),
}
