//! One resource: its cached value, its error, and what its watchers know.

use std::sync::Arc;

use proxyless_sans_io::{SmallMap, Time};

use super::api::{ResourceError, ResourceErrorKind, WatchEvent};
use super::authorities::AuthorityId;
use super::dump::ResourceStatus;
use super::ids::{ServerId, WatchKey};
use super::messages::DetachedAny;
use crate::resource::Resource;

#[derive(Debug, Default)]
pub(super) struct ResourceState {
    pub(super) authority: AuthorityId,
    /// Empty while the server has not yet seen the unsubscription: if the resource were subscribed again before that,
    /// the server would see no change and not resend it.
    pub(super) watchers: SmallMap<WatchKey, ()>,
    pub(super) data: Option<Data>,
    /// The latest error of the resource. Boxed, because few have one.
    pub(super) error: Option<Box<DataError>>,
    pub(super) wait: Wait,
    /// The end of its limbo, if it is unwatched and the unsubscription was sent.
    pub(super) limbo: Option<Time>,
    pub(super) standing: Standing,
    told: Told,
}

/// How certain it is that the server has the cached value too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// The server sent it, and knows that we have it.
    #[default]
    Sure,
    /// It was unsubscribed and subscribed again a moment later. The server sends it again if it exists, unless a response
    /// crossed these requests.
    Resubscribed,
    /// A response may have crossed its unsubscription, which the server has then ignored. Or another server sent it.
    Doubtful,
    /// A response that lists all resources did not contain it, after it was subscribed again; that response may predate
    /// our request.
    Absent,
}

/// A resource in use.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) resource: Resource,
    /// As received, wrapper included.
    pub(super) raw: DetachedAny,
    /// The server that sent it.
    pub(super) server: ServerId,
    pub(super) version: Arc<str>,
    pub(super) updated: Time,
    /// The number of changes, to compare values cheaply.
    generation: u64,
}

/// The origin of a value or an error: the server, the version of the response and the time at which it was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub(super) server: ServerId,
    pub(super) version: &'a Arc<str>,
    pub(super) time: Time,
}

#[derive(Debug)]
pub(super) struct DataError {
    pub(super) version: Arc<str>,
    pub(super) time: Time,
    pub(super) error: Arc<ResourceError>,
}

/// The state of the wait for the resource on the current stream (gRFC A57).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not requested on this stream.
    #[default]
    Unsent,
    /// The request is being sent.
    Sending,
    /// requested on a live stream, and not cached.
    Running { since: Time, deadline: Time },
    /// Received, or the timer has expired.
    Over,
}

/// The last state reported to watchers: the generation in use and the error.
#[derive(Debug, Default)]
struct Told {
    generation: Option<u64>,
    error: Option<Arc<ResourceError>>,
}

impl ResourceState {
    pub(super) fn new(authority: AuthorityId) -> Self {
        Self { authority, ..Self::default() }
    }

    /// Stores a valid resource. A value equal to the previous one is not reported to watchers.
    pub(super) fn replace_data(&mut self, resource: Resource, raw: DetachedAny, from: Received<'_>) {
        let (resource, generation) = match self.data.take() {
            Some(old) if old.resource == resource => (old.resource, old.generation),
            Some(old) => (resource, old.generation + 1),
            None => (resource, self.told.generation.unwrap_or(0) + 1),
        };
        let (version, updated) = (Arc::clone(from.version), from.time);
        self.data = Some(Data { resource, raw, server: from.server, version, updated, generation });
        self.error = None;
    }

    /// The same bytes were received again.
    pub(super) fn confirm(&mut self, from: Received<'_>) {
        if let Some(data) = &mut self.data {
            data.server = from.server;
            data.version = Arc::clone(from.version);
            data.updated = from.time;
        }
        self.error = None;
    }

    /// The same bytes were received again. If that ends a wait or an error, or they come from another server, does
    /// nothing and returns false.
    pub(super) fn confirm_settled(&mut self, from: Received<'_>) -> bool {
        let settled = self.wait == Wait::Over && self.error.is_none() && self.source() == Some(from.server);
        if settled {
            self.confirm(from);
        }
        settled
    }

    /// An unsubscribed resource is watched again. Without a value it is a new one: its error is obsolete, since it is
    /// requested again.
    pub(super) fn revive(&mut self, standing: Standing) {
        match self.data {
            Some(_) => self.standing = standing,
            None => *self = Self { authority: self.authority, limbo: self.limbo, ..Self::default() },
        }
    }

    /// The value in use.
    pub(super) fn resource(&self) -> Option<&Resource> {
        self.data.as_ref().map(|data| &data.resource)
    }

    /// The server that sent the value in use.
    pub(super) fn source(&self) -> Option<ServerId> {
        self.data.as_ref().map(|data| data.server)
    }

    /// A71-09: whether the resource is watched, and neither in use nor known to be absent.
    pub(super) fn is_missing(&self) -> bool {
        let absent = self.status() == ResourceStatus::DoesNotExist;
        !self.watchers.is_empty() && self.data.is_none() && !absent
    }

    /// Whether the server deleted the resource while it stays in use (A53, A88).
    pub(super) fn is_deletion_ignored(&self) -> bool {
        self.data.is_some() && self.status() == ResourceStatus::DoesNotExist
    }

    /// The events for the watchers, in order, given that the server is unreachable for the reason `transient`.
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
            // Nothing is known yet, so there is nothing to report.
            (None, None) => Vec::new(),
        }
    }

    /// The events for a new watcher: what the others know, in the same order (gRFC A88).
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

    /// A40-41 to A40-46: the status that CSDS reports, derived from the data and the error.
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
                    | ResourceErrorKind::Name(_)
                    | ResourceErrorKind::Transient(_)
                    | ResourceErrorKind::NoAdsService(_),
                ),
            ) => ResourceStatus::Timeout,
            (_, Some(ResourceErrorKind::Reported { .. })) => ResourceStatus::ReceivedError,
        }
    }
}
