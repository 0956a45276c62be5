//! The ring: each endpoint has a number of entries proportional to its weight.

use std::fmt::Write;

use xxhash_rust::xxh64::xxh64;

use super::config::RingHashConfig;

/// An endpoint on the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The key from which the hashes of its entries are computed.
    pub(super) key: String,
    /// The weight; not 0.
    pub(super) weight: u32,
}

/// The entries, ordered by hash.
pub(super) struct Ring {
    entries: Box<[RingEntry]>,
    members: Vec<Member>,
    config: RingHashConfig,
}

#[derive(Clone, Copy)]
struct RingEntry {
    hash: u64,
    /// The index of the member.
    member: u32,
}

impl Ring {
    /// Builds the ring. The same members give the same ring in every client.
    pub(super) fn new(members: Vec<Member>, config: &RingHashConfig) -> Self {
        let mut entries = Vec::new();
        let total: u64 = members.iter().map(|member| u64::from(member.weight)).sum();
        let share = |member: &Member| f64::from(member.weight) / total as f64;
        let smallest = members.iter().map(share).fold(1.0, f64::min);
        let (min, max) = config.limits();
        // A42: scaled so that the lightest member has a whole number of entries, between the minimum and the maximum.
        let size = ((smallest * min as f64).ceil() / smallest).min(max as f64);
        // Running sums instead of rounding per member, so that rounding errors do not accumulate.
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
                entries.push(RingEntry { hash: xxh64(text.as_bytes(), 0), member: index });
                count += 1;
                placed += 1.0;
            }
        }
        entries.sort_unstable_by_key(|entry| (entry.hash, entry.member));
        Self { entries: entries.into(), members, config: config.clone() }
    }

    /// Whether these members and this configuration give this ring.
    pub(super) fn is_built_from(&self, members: &[Member], config: &RingHashConfig) -> bool {
        self.members == members && self.config == *config
    }

    /// The members from the entry for a hash onwards, once around; members occur repeatedly.
    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let first = self.entries.partition_point(|entry| entry.hash < hash);
        let (before, from) = self.entries.split_at(first);
        from.iter().chain(before).map(|entry| entry.member as usize)
    }
}
