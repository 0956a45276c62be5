//! Panics of drivers and of their tasks: bugs in proxyless or in user code.

use std::fmt;

use proxyless_transport::panics::{Panicked, contain};

use crate::targets;

/// Logs a panic. Logging itself may panic (a tracing layer may have been the cause), which is contained.
pub(super) fn log(who: &dyn fmt::Display, panicked: &Panicked) {
    let _ = contain(
        || tracing::error!(target: targets::CHANNEL, %who, %panicked, "a task panicked; this is a bug"),
    );
}
