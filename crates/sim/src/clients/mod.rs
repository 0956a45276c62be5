//! The client side of a world: channels around real cores, their connections to backends, and the RPCs on them.

pub(crate) mod calls;
pub(crate) mod channel;
pub(crate) mod endpoints;
pub(crate) mod sessions;
