//! The client side of a world: channels around real cores, their connections to backends, and the RPCs on them.

pub mod calls;
pub mod channel;
pub mod endpoints;
pub(crate) mod sessions;
