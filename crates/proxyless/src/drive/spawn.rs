//! Starts the task of a channel.

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::channel::Command;
use super::supervisor::{Parts, Supervisor};

/// Runs a channel in `runtime` until the last sender of its commands is dropped, and lists it in its pool for
/// inspection.
pub(crate) fn spawn(parts: Parts, runtime: &Handle) -> UnboundedSender<Command> {
    let (commands, inbox) = unbounded_channel();
    parts.clients.pool.list(&commands);
    runtime.spawn(Supervisor::new(parts).run(inbox));
    commands
}
