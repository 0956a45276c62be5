//! The rules that every world is checked against.
//!
//! Some hold after every event ([`invariants`], [`in_use`], [`kept`], [`ledger`]), the others when the world is at rest.

pub mod expected;
pub(crate) mod fresh;
pub(crate) mod in_use;
pub mod invariants;
pub(crate) mod kept;
pub mod ledger;
pub(crate) mod liveness;
pub mod oracle;
pub(crate) mod outliers;
pub(crate) mod owners;
pub(crate) mod shares;
