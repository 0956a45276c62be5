//! Loom models of the round robin position: threads that race for turns.

use std::collections::BTreeSet;

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::thread;

use super::*;
use crate::api::use_stripe;

/// No turn is given twice: not where threads race for one turn, for the rest of a block, or for a new block.
fn turns_are_different(stripes: [usize; 2], taken: Option<Taken>) {
    check(3, move || {
        let position = Position::starting_at(0);
        if let Some(taken) = taken {
            position.next.0.store(1000, Ordering::Relaxed);
            position.taken.at_or(0, |_| Box::default()).0.store(taken.0, Ordering::Relaxed);
        }
        let picks = stripes.map(|stripe| {
            let position = Arc::clone(&position);
            thread::spawn(move || {
                use_stripe(stripe);
                [position.next(), position.next()]
            })
        });
        use_stripe(0);
        let mut turns = vec![position.next()];
        turns.extend(picks.into_iter().flat_map(|pick| pick.join().unwrap()));
        assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), turns.len(), "{turns:?}");
    });
}

#[test]
fn threads_that_take_single_turns_never_get_the_same() {
    turns_are_different([0, 1], None);
}

#[test]
fn threads_that_share_the_end_of_a_block_never_get_the_same() {
    turns_are_different([0, 0], Some(Taken::new(7, 1, 1)));
}

#[test]
fn threads_that_take_blocks_never_get_the_same() {
    turns_are_different([0, 0], Some(Taken::new(7, 2, 0)));
}
