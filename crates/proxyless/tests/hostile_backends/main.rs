//! Backends that violate protocols: RPCs to them always end in time with a status that names the cause, RPCs to others
//! continue, there are no retry storms, and no memory or connections leak.
//!
//! `HOSTILE_ONLY=part-of-a-name` runs only the cases with matching names.

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod bounds;
mod case;
mod connections;
mod cookies;
mod descriptors;
mod floods;
mod frames;
mod memory;
mod messages;
mod server;

use std::sync::Once;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use tokio::sync::{Mutex, MutexGuard};

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// One test at a time: they measure the memory of the process, and compete for its processors.
pub(crate) struct Turn(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Turn {
    pub(crate) async fn take() -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let report = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                PANICS.fetch_add(1, SeqCst);
                report(panic);
            }));
        });
        let turn = TURN.lock().await;
        PANICS.store(0, SeqCst);
        Self(turn)
    }

    /// No panic occurred, not even in the tasks of the channel.
    pub(crate) fn end(self) {
        assert_eq!(PANICS.load(SeqCst), 0, "panics");
    }
}
