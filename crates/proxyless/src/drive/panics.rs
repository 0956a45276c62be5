//! Panics of drivers and of their tasks: bugs, in proxyless or in what the program plugs into it.

use std::fmt;

use proxyless_transport::panics::{Panicked, contain};

/// Logs a panic. What logs may be what panicked, so it is not trusted here.
pub(super) fn log(who: &dyn fmt::Display, panicked: &Panicked) {
    let _ = contain(|| tracing::error!(target: "channel", %who, %panicked, "a task panicked; this is a bug"));
}
