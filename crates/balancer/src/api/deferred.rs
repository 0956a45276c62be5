//! Work that is done once per input, however many events request it.

use super::{Cx, Signal, TreePathBuf};

/// Work postponed to the end of the current input. A policy that many children report to uses it to publish once.
#[derive(Default)]
pub struct Deferred(Option<Signal>);

impl Deferred {
    /// Delivers [`TreeEvent::Signal`](super::TreeEvent::Signal) with this tag to the policy after all other events of
    /// the current input, unless that was requested already.
    pub fn request(&mut self, tag: u32, cx: &mut dyn Cx) {
        if self.0.is_none() {
            let signal = cx.create_signal(TreePathBuf::default(), tag);
            cx.defer(&signal);
            self.0 = Some(signal);
        }
    }

    /// Ends the request; returns true if there was one.
    pub fn take(&mut self) -> bool {
        self.0.take().is_some()
    }
}
