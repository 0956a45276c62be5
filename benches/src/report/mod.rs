//! The human-readable results: tables, verdicts on the targets, the cells in which a peer is ahead, and a picture.

mod ahead;
mod chart;
mod docs;
mod machines;
mod table;
mod targets;

pub(crate) use ahead::ahead;
pub(crate) use chart::chart;
pub(crate) use docs::{render, store};
pub(crate) use table::tables;
pub(crate) use targets::verdicts;
