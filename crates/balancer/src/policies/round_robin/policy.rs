//! The policy: its picker for the READY endpoints.

use std::sync::Arc;

use super::RoundRobinConfig;
use super::picker::RoundRobinPicker;
use super::position::Position;
use crate::api::{Cx, Picker};
use crate::petiole::{Member, Spread, SpreadPolicy};

/// The policy `round_robin`.
pub(super) type RoundRobin = SpreadPolicy<Turns>;

/// The turns of the endpoints.
#[derive(Default)]
pub(super) struct Turns(Option<Arc<Position>>);

impl Spread for Turns {
    const NAME: &'static str = "round_robin";
    type Config = RoundRobinConfig;
    type Picker = RoundRobinPicker;

    fn picker(
        &mut self,
        _: &[&Member],
        children: Vec<Arc<dyn Picker>>,
        cx: &mut dyn Cx,
    ) -> Arc<RoundRobinPicker> {
        // One endpoint needs no turns: small localities would pay two cache lines for them.
        if children.len() > 1 {
            // A random start, so that clients do not all start with the same endpoint.
            self.0.get_or_insert_with(|| Position::starting_at(cx.rng().next_u64()));
        }
        RoundRobinPicker::new(children, self.0.clone())
    }
}
