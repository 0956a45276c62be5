//! The tracers of one RPC (gRFC A72) and of its attempts; usually none or one.

use std::sync::Arc;

use http::HeaderMap;

use crate::telemetry::{AttemptStart, AttemptTracer, CallTracer, Code, Message};

/// The tracers of an RPC.
pub(super) struct CallTraces(pub(super) Vec<Box<dyn CallTracer>>);

/// The tracers of an attempt. Clones share them.
#[derive(Clone, Default)]
pub(super) struct AttemptTraces(Option<Arc<[Arc<dyn AttemptTracer>]>>);

impl CallTraces {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn name_resolution_delayed(&mut self) {
        self.0.iter_mut().for_each(|tracer| tracer.name_resolution_delayed());
    }

    pub(super) fn attempt(&mut self, start: AttemptStart) -> AttemptTraces {
        if self.is_empty() {
            return AttemptTraces::default();
        }
        AttemptTraces(Some(self.0.iter_mut().map(|tracer| tracer.attempt(start)).collect()))
    }

    pub(super) fn ended(&mut self, code: Code, message: &str) {
        self.0.iter_mut().for_each(|tracer| tracer.ended(code, message));
    }
}

impl AttemptTraces {
    /// Usually empty, which is seen at once.
    fn each(&self) -> impl Iterator<Item = &dyn AttemptTracer> {
        self.0.as_deref().unwrap_or_default().iter().map(|tracer| &**tracer)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn inject(&self, headers: &mut HeaderMap) {
        self.each().for_each(|tracer| tracer.inject(headers));
    }

    pub(super) fn pick_delayed(&self) {
        self.each().for_each(|tracer| tracer.pick_delayed());
    }

    pub(super) fn sent(&self, message: Message) {
        self.each().for_each(|tracer| tracer.sent(message));
    }

    pub(super) fn received(&self, message: Message) {
        self.each().for_each(|tracer| tracer.received(message));
    }

    pub(super) fn ended(&self, code: Code, message: &str) {
        self.each().for_each(|tracer| tracer.ended(code, message));
    }
}
