//! The human-readable results: tables, verdicts on the targets, and a picture.

mod chart;
mod docs;
mod table;
mod targets;

pub(crate) use chart::chart;
pub(crate) use docs::write_docs;
pub(crate) use table::tables;
pub(crate) use targets::verdicts;
