//! The ring: every endpoint at many places, in proportion to its weight.

use std::fmt::Write;

use xxhash_rust::xxh64::xxh64;

use super::config::RingHashConfig;

/// An endpoint as the ring knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// What its places are computed from.
    pub(super) key: String,
    /// Its share of the ring; not 0.
    pub(super) weight: u32,
}

/// Members at their places, in the order of the hashes.
pub(super) struct Ring {
    places: Box<[Place]>,
    members: Vec<Member>,
    config: RingHashConfig,
}

#[derive(Clone, Copy)]
struct Place {
    hash: u64,
    /// Index into the members.
    member: u32,
}

impl Ring {
    /// Puts members on a ring. The same members give the same ring in every client.
    pub(super) fn new(members: Vec<Member>, config: &RingHashConfig) -> Self {
        let mut places = Vec::new();
        let total: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
        let share = |member: &Member| f64::from(member.weight) / total as f64;
        let smallest = members.iter().map(share).fold(1.0, f64::min);
        let (min, max) = config.limits();
        // A42: as many places as give the lightest member a whole number of them, from the minimum up to the maximum.
        let size = ((smallest * min as f64).ceil() / smallest).min(max as f64);
        // Running sums, not a rounded number per member: what one member is short of the next one does not get.
        let (mut placed, mut due) = (0.0, 0.0);
        let mut text = String::new();
        for (index, member) in (0..).zip(&members) {
            due += size * share(member);
            text.clear();
            text.push_str(&member.key);
            text.push('_');
            let prefix = text.len();
            let mut count = 0u32;
            while placed < due {
                text.truncate(prefix);
                // Writing to a String cannot fail.
                let _ = write!(text, "{count}");
                places.push(Place { hash: xxh64(text.as_bytes(), 0), member: index });
                count += 1;
                placed += 1.0;
            }
        }
        places.sort_unstable_by_key(|place| (place.hash, place.member));
        Self { places: places.into(), members, config: config.clone() }
    }

    /// Whether a ring of these members would be this ring.
    pub(super) fn is_of(&self, members: &[Member], config: &RingHashConfig) -> bool {
        self.members == members && self.config == *config
    }

    /// The members at and after the place that a request's hash falls on, once around; members come up repeatedly.
    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let first = self.places.partition_point(|place| place.hash < hash);
        let (before, from) = self.places.split_at(first);
        from.iter().chain(before).map(|place| place.member as usize)
    }
}
