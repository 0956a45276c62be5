//! The configurations over time, and when the client accepted each.

use std::collections::BTreeMap;

use crate::clock::Micros;
use crate::config::Effect;
use crate::topology::{Backends, EDS_CLUSTERS};
use crate::wire::Type;

/// A fact of the configuration over time.
#[derive(Clone, Debug)]
struct Timeline<T> {
    of: Type,
    /// Each value with its time and the number of its update.
    entries: Vec<(Micros, u64, T)>,
}

impl<T: PartialEq + Copy> Timeline<T> {
    fn push(&mut self, at: Micros, number: u64, value: T) {
        if self.entries.last().is_none_or(|(_, _, last)| *last != value) {
            self.entries.push((at, number, value));
        }
    }
}

/// The configuration over a whole run.
#[derive(Clone, Debug)]
pub(crate) struct History {
    listed: Vec<Timeline<Backends>>,
    exists: Vec<Timeline<bool>>,
    route: Timeline<[bool; 2]>,
    /// The accepted updates by type, with their times; both grow.
    acks: BTreeMap<Type, Vec<(Micros, u64)>>,
    /// The number of updates.
    pub(crate) updates: u64,
    pub(crate) nacks: u64,
}

impl History {
    pub(crate) fn new() -> Self {
        let clusters = EDS_CLUSTERS.len();
        Self {
            listed: vec![Timeline { of: Type::Endpoints, entries: Vec::new() }; clusters],
            exists: vec![Timeline { of: Type::Cluster, entries: Vec::new() }; clusters],
            route: Timeline { of: Type::Routes, entries: Vec::new() },
            acks: BTreeMap::new(),
            updates: 0,
            nacks: 0,
        }
    }

    pub(crate) fn record(&mut self, at: Micros, number: u64, effect: &Effect) {
        match *effect {
            Effect::Listed(cluster, listed) => self.listed[cluster].push(at, number, listed),
            Effect::Exists(cluster, exists) => self.exists[cluster].push(at, number, exists),
            Effect::Route(route) => self.route.push(at, number, route),
            Effect::Nothing | Effect::Rejected => {}
        }
    }

    pub(crate) fn acked(&mut self, of: Type, number: u64, at: Micros) {
        let acks = self.acks.entry(of).or_default();
        if acks.last().is_none_or(|(_, last)| *last < number) {
            acks.push((at, number));
        }
    }

    /// The time at which the client first accepted this update or a later one.
    pub(crate) fn acked_at(&self, of: Type, number: u64) -> Option<Micros> {
        let acks = self.acks.get(&of)?;
        acks.get(acks.partition_point(|(_, acked)| *acked < number)).map(|(at, _)| *at)
    }

    /// The first acceptance after this time.
    pub(crate) fn first_ack_after(&self, time: Micros) -> Option<Micros> {
        let first = |acks: &Vec<(Micros, u64)>| {
            acks.get(acks.partition_point(|(at, _)| *at < time)).map(|(at, _)| *at)
        };
        self.acks.values().filter_map(first).min()
    }

    /// Every value that the client may have used in this interval: those that the control plane got before its end,
    /// except those superseded by an update that the client accepted more than `grace` before its beginning.
    fn in_force<'a, T: Copy>(
        &'a self,
        line: &'a Timeline<T>,
        from: Micros,
        to: Micros,
        grace: Micros,
    ) -> impl Iterator<Item = T> + 'a {
        let last = line.entries.partition_point(|(at, ..)| *at <= to);
        let mut superseded = false;
        line.entries[..last].iter().rev().map_while(move |(_, number, value)| {
            if superseded {
                return None;
            }
            superseded = self.acked_at(line.of, *number).is_some_and(|at| at + grace < from);
            Some(*value)
        })
    }

    /// The backends that a cluster may have listed at some point of this interval, and those that it listed throughout.
    /// Without its Cluster resource a cluster lists none.
    pub(crate) fn listed(&self, cluster: usize, from: Micros, to: Micros, grace: Micros) -> Listed {
        let mut listed = Listed { maybe: 0, surely: Backends::MAX };
        for set in self.in_force(&self.listed[cluster], from, to, grace) {
            listed.maybe |= set;
            listed.surely &= set;
        }
        if self.in_force(&self.exists[cluster], from, to, grace).any(|exists| !exists) {
            listed.surely = 0;
        }
        listed
    }

    /// The members of east and west that the route may have named in this interval.
    pub(crate) fn routed(&self, from: Micros, to: Micros, grace: Micros) -> [bool; 2] {
        let each = self.in_force(&self.route, from, to, grace);
        each.fold([false; 2], |any, route| [any[0] | route[0], any[1] | route[1]])
    }
}

/// The backends of one or more clusters over an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) maybe: Backends,
    pub(crate) surely: Backends,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_force_until_a_later_one_is_accepted() {
        let mut history = History::new();
        history.record(10, 1, &Effect::Listed(0, 0b11));
        history.record(100, 2, &Effect::Listed(0, 0b01));
        history.record(10, 1, &Effect::Exists(0, true));
        let listed = |history: &History, from, to| history.listed(0, from, to, 5);
        assert_eq!(listed(&history, 20, 30), Listed { maybe: 0b11, surely: 0b11 });
        assert_eq!(listed(&history, 500, 600), Listed { maybe: 0b11, surely: 0b01 }, "not accepted yet");
        history.acked(Type::Endpoints, 2, 200);
        assert_eq!(listed(&history, 204, 600), Listed { maybe: 0b11, surely: 0b01 }, "within the grace");
        assert_eq!(listed(&history, 206, 600), Listed { maybe: 0b01, surely: 0b01 });
        assert_eq!(listed(&history, 20, 30), Listed { maybe: 0b11, surely: 0b11 });
        history.record(300, 3, &Effect::Exists(0, false));
        assert_eq!(listed(&history, 310, 320), Listed { maybe: 0b01, surely: 0 });
    }
}
