//! The rules that every world is checked against.
//!
//! Some hold after every event ([`invariants`], [`in_use`], [`kept`], [`ledger`]), the others when the world is at
//! rest.

pub(crate) mod expected;
pub(crate) mod faults;
pub(crate) mod fresh;
pub(crate) mod in_use;
pub(crate) mod invariants;
pub(crate) mod keepalive;
pub(crate) mod kept;
pub(crate) mod ledger;
pub(crate) mod liveness;
pub(crate) mod oracle;
pub(crate) mod outliers;
pub(crate) mod owners;
pub(crate) mod shares;
