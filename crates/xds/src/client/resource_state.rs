//! One resource: what is cached of it, what is wrong with it, and what its watchers were told.

use std::collections::BTreeSet;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::api::{ResourceError, ResourceErrorKind, WatchEvent, WatchId};
use super::dump::ResourceStatus;
use super::wire::Any;
use crate::resource::Resource;

#[derive(Debug, Default)]
pub(super) struct ResourceState {
    /// Empty for the short time until the server knows that nobody wants the resource any more: should someone want it
    /// again before that, the server would see no change and not send it again.
    pub(super) watchers: BTreeSet<WatchId>,
    pub(super) data: Option<Data>,
    /// What is wrong with the newest that the server said of it.
    pub(super) error: Option<DataError>,
    pub(super) wait: Wait,
    /// Until when it is kept although nobody wants it and the server was told so, if that is the case.
    pub(super) limbo: Option<Time>,
    pub(super) standing: Standing,
    told: Told,
}

/// How sure it is that the resource in use is the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// The server sent it, and has known ever since that we have it.
    #[default]
    Sure,
    /// It was let go and asked for again; the server has not sent it since, perhaps because it never learned of that.
    Doubtful,
    /// The same, and it was not in a response that lists all resources, perhaps because that is older than our request.
    Absent,
}

/// A resource in use.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) resource: Resource,
    /// As it came, wrapper included.
    pub(super) raw: Any,
    pub(super) version: Arc<str>,
    pub(super) updated: Time,
    /// Counts the changes, so that what was told can be compared cheaply.
    generation: u64,
}

#[derive(Debug)]
pub(super) struct DataError {
    pub(super) version: Arc<str>,
    pub(super) time: Time,
    pub(super) error: Arc<ResourceError>,
}

/// How far the wait for the resource is on the present stream (gRFC A57).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// It was not asked for on this stream.
    #[default]
    Unsent,
    /// The request is on its way out.
    Sending,
    /// asked for on a live stream, and not cached.
    Running { since: Time, deadline: Time },
    /// It came, or the time is over.
    Over,
}

/// What watchers believe: the generation in use and the error.
#[derive(Debug, Default)]
struct Told {
    generation: Option<u64>,
    error: Option<Arc<ResourceError>>,
}

impl ResourceState {
    /// Takes a good resource into use. One that is equal to the last is not new to watchers.
    pub(super) fn accept(&mut self, resource: Resource, raw: Any, version: &Arc<str>, now: Time) {
        let (resource, generation) = match self.data.take() {
            Some(old) if old.resource == resource => (old.resource, old.generation),
            Some(old) => (resource, old.generation + 1),
            None => (resource, self.told.generation.unwrap_or(0) + 1),
        };
        self.data = Some(Data { resource, raw, version: Arc::clone(version), updated: now, generation });
        self.error = None;
    }

    /// The very same bytes came again.
    pub(super) fn confirm(&mut self, version: &Arc<str>, now: Time) {
        if let Some(data) = &mut self.data {
            data.version = Arc::clone(version);
            data.updated = now;
        }
        self.error = None;
    }

    /// The very same bytes came again. Does nothing, and says so, if that puts an end to a wait or an error.
    pub(super) fn confirm_settled(&mut self, version: &Arc<str>, now: Time) -> bool {
        let settled = self.wait == Wait::Over && self.error.is_none();
        if settled {
            self.confirm(version, now);
        }
        settled
    }

    /// Somebody wants the resource again that was let go.
    pub(super) fn revive(&mut self) {
        match self.data {
            Some(_) => self.standing = Standing::Doubtful,
            // What was wrong with it is old: the server is asked again.
            None => *self = Self { limbo: self.limbo, ..Self::default() },
        }
    }

    /// Whether the server deleted the resource, and it stays in use all the same (A53, A88).
    pub(super) fn is_deletion_ignored(&self) -> bool {
        self.data.is_some() && self.status() == ResourceStatus::DoesNotExist
    }

    /// What watchers must be told now, in order, given that the server is unreachable for the reason `transient`.
    ///
    /// gRFC A88: an error beside data is ambient; without data it takes the resource's place.
    pub(super) fn news(&mut self, transient: Option<Arc<ResourceError>>) -> Vec<WatchEvent> {
        let error = transient.or_else(|| self.error.as_ref().map(|error| error.error.clone()));
        let now = Told { generation: self.data.as_ref().map(|data| data.generation), error };
        let before = std::mem::replace(&mut self.told, now);
        let data_is_new = self.told.generation != before.generation;
        if data_is_new {
            return self.replay();
        }
        match (&self.data, &self.told.error) {
            (_, error) if *error == before.error => Vec::new(),
            (Some(_), error) => vec![WatchEvent::Ambient(error.clone())],
            (None, Some(error)) => vec![WatchEvent::Changed(Err(error.clone()))],
            // Nothing is known any more: there is nothing to say until something is.
            (None, None) => Vec::new(),
        }
    }

    /// What a late watcher must be told: what all others know, in the same order (gRFC A88).
    pub(super) fn replay(&self) -> Vec<WatchEvent> {
        let error = self.told.error.clone();
        match &self.data {
            Some(data) => {
                let ambient = error.map(|error| WatchEvent::Ambient(Some(error)));
                [WatchEvent::Changed(Ok(data.resource.clone()))].into_iter().chain(ambient).collect()
            }
            None => error.map(|error| WatchEvent::Changed(Err(error))).into_iter().collect(),
        }
    }

    /// A40-41 to A40-46: the status that CSDS shows. It follows from the data and the error.
    pub(super) fn status(&self) -> ResourceStatus {
        match (&self.data, self.error.as_ref().map(|error| &error.error.kind)) {
            (None, None) => ResourceStatus::Requested,
            (Some(_), None) => ResourceStatus::Acked,
            (_, Some(ResourceErrorKind::DoesNotExist(_))) => ResourceStatus::DoesNotExist,
            (_, Some(ResourceErrorKind::Invalid { .. })) => ResourceStatus::Nacked,
            (
                _,
                Some(
                    ResourceErrorKind::Timeout(_)
                    | ResourceErrorKind::Transient(_)
                    | ResourceErrorKind::NoAdsService(_),
                ),
            ) => ResourceStatus::Timeout,
            (_, Some(ResourceErrorKind::Reported { .. })) => ResourceStatus::ReceivedError,
        }
    }
}
