//! The position of round robin, which weighted_round_robin uses too: in strict order, unless threads pick concurrently.
//!
//! Every pick takes the next turn from one shared counter. A thread that loses a race for it reserves turns in blocks
//! for a while and uses them up on its own, so that threads that pick all the time rarely contend. No turn is used
//! twice.

use std::sync::Arc;

use proxyless_sans_io::sync::atomic::{AtomicU64, Ordering};

use crate::api::{LazyStriped, Padded};

/// The number of turns reserved at once.
const BLOCK: u64 = 128;
/// The number of blocks that a stripe may reserve after a lost race. Lost races are expensive, so a stripe stays in
/// block mode for a while.
const BLOCKS: u64 = 32;

/// The turns of a policy. All accesses are relaxed: turns order nothing, they only have to be distinct.
pub(crate) struct Position {
    /// Not in the cache line of `taken`, which every pick reads.
    next: Padded<AtomicU64>,
    /// The reservations of each stripe that has lost a race.
    taken: LazyStriped<Box<Padded<AtomicU64>>>,
}

/// A stripe's reservation in one number: the next turn of its block, the number of blocks that may follow, and the
/// turns left.
#[derive(Clone, Copy)]
struct Taken(u64);

impl Taken {
    fn new(turn: u64, blocks: u64, left: u64) -> Self {
        Self(turn << 16 | blocks << 8 | left)
    }

    fn parts(self) -> (u64, u64, u64) {
        (self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff)
    }
}

impl Position {
    pub(crate) fn starting_at(turn: u64) -> Arc<Self> {
        // Turns have 48 bits; starting with 40 leaves room to count.
        Arc::new(Self { next: Padded(AtomicU64::new(turn >> 24)), taken: LazyStriped::default() })
    }

    /// The next turn.
    pub(crate) fn next(&self) -> u64 {
        if let Some(turn) = self.taken.own().and_then(|taken| self.reserved(&taken.0)) {
            return turn;
        }
        let turn = self.next.0.load(Ordering::Relaxed);
        match self.next.0.compare_exchange(turn, turn + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(turn) => turn,
            Err(_) => self.take(&self.taken.own_or(|_| Box::default()).0, BLOCKS - 1),
        }
    }

    /// A turn that is reserved for the stripe, or that it may reserve.
    fn reserved(&self, taken: &AtomicU64) -> Option<u64> {
        let before = taken.load(Ordering::Relaxed);
        let (turn, blocks, left) = Taken(before).parts();
        if left > 0 {
            let rest = Taken::new(turn + 1, blocks, left - 1);
            // Fails if another thread of the stripe was faster.
            let won = taken.compare_exchange(before, rest.0, Ordering::Relaxed, Ordering::Relaxed);
            return won.is_ok().then_some(turn);
        }
        (blocks > 0).then(|| self.take(taken, blocks - 1))
    }

    /// Reserves a block for the stripe and returns its first turn.
    fn take(&self, taken: &AtomicU64, blocks: u64) -> u64 {
        let turn = self.next.0.fetch_add(BLOCK, Ordering::Relaxed);
        // A concurrent reservation by another thread of the stripe is lost: turns may be skipped, but are never used
        // twice.
        taken.store(Taken::new(turn + 1, blocks, BLOCK - 1).0, Ordering::Relaxed);
        turn
    }
}

#[cfg(all(test, proxyless_loom))]
mod models;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proxyless_sans_io::stripes::MOST_STRIPES;

    #[test]
    fn a_thread_alone_gets_all_turns_in_order() {
        let position = Position::starting_at(7 << 24);
        assert_eq!((0..100).map(|_| position.next()).collect::<Vec<_>>(), (7..107).collect::<Vec<_>>());
    }

    #[test]
    fn threads_in_turns_get_all_turns_in_order() {
        let position = Position::starting_at(0);
        for turn in 0..100 {
            let got = std::thread::scope(|scope| scope.spawn(|| position.next()).join().unwrap());
            assert_eq!(got, turn);
        }
    }

    #[test]
    fn blocks_are_used_up_in_order_and_then_the_order_is_strict_again() {
        let position = Position::starting_at(0);
        position.taken.own_or(|_| Box::default()).0.store(Taken::new(1000, 1, 2).0, Ordering::Relaxed);
        let turns = [1000, 1001].into_iter().chain(0..200);
        assert_eq!((0..202).map(|_| position.next()).collect::<Vec<_>>(), turns.collect::<Vec<_>>());
        assert_eq!(position.next.0.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn threads_at_once_never_get_the_same_turn() {
        let position = Position::starting_at(u64::MAX);
        let turns = || (0..20_000).map(|_| position.next()).collect::<Vec<_>>();
        let all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * MOST_STRIPES).map(|_| scope.spawn(turns)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
