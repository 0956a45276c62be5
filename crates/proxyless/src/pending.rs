//! The requests of a channel's driver that are not answered yet: resources and connections. They are part of the errors
//! of RPCs that wait for them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proxyless_balancer::tree::{AttemptId, SubchannelId};
use proxyless_sans_io::SmallMap;
use proxyless_xds::client::WatchId;
use proxyless_xds::resource::ResourceType;
use tokio::time::Instant;

/// A status message is a header: a mesh of a thousand clusters must not fill it.
const MAX_SHOWN: usize = 5;

/// Resources that the management server has not answered yet.
pub(crate) type Missing = Pending<WatchId, MissingResource>;

/// The connection attempts in progress.
pub(crate) type Connecting = Pending<(SubchannelId, AttemptId), SocketAddr>;

/// Unanswered requests. Locked by the driver, and by calls only to report an error.
///
/// Displayed as a list of the first few; empty if there are none.
pub(crate) struct Pending<K, V> {
    requests: Mutex<SmallMap<K, V>>,
    /// The text before the list.
    prefix: &'static str,
    /// The text after the number of requests that are not shown.
    suffix: &'static str,
}

/// A requested resource.
pub(crate) struct MissingResource {
    resource_type: ResourceType,
    name: Arc<str>,
    since: Instant,
}

impl Default for Missing {
    fn default() -> Self {
        Self { requests: Mutex::default(), prefix: "; waiting for ", suffix: " more resources" }
    }
}

impl Default for Connecting {
    fn default() -> Self {
        Self { requests: Mutex::default(), prefix: ", connecting to ", suffix: " more" }
    }
}

impl<K: Ord, V> Pending<K, V> {
    pub(crate) fn began(&self, request: K, value: V) {
        self.lock().insert(request, value);
    }

    pub(crate) fn ended(&self, request: &K) {
        self.lock().remove(request);
    }

    pub(crate) fn clear(&self) {
        *self.lock() = SmallMap::new();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl<K, V> Pending<K, V> {
    fn lock(&self) -> MutexGuard<'_, SmallMap<K, V>> {
        // The map is consistent whenever the lock is free, even if a holder panicked.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V: fmt::Display> fmt::Display for Pending<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = self.lock();
        for (number, value) in requests.values().take(MAX_SHOWN).enumerate() {
            write!(f, "{}{value}", if number == 0 { self.prefix } else { ", " })?;
        }
        match requests.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more}{}", self.suffix),
        }
    }
}

impl MissingResource {
    pub(crate) fn new(resource_type: ResourceType, name: &Arc<str>) -> Self {
        Self { resource_type, name: Arc::clone(name), since: Instant::now() }
    }
}

impl fmt::Display for MissingResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (requested {:.1?} ago)", self.resource_type.name(), self.name, self.since.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str) -> MissingResource {
        MissingResource::new(ResourceType::Cluster, &name.into())
    }

    #[test]
    fn errors_name_a_bounded_number_of_missing_resources() {
        let missing = Missing::default();
        for number in 0..1000 {
            missing.began(WatchId(number), resource(&format!("c{number}")));
        }
        let text = missing.to_string();
        assert!(
            text.starts_with("; waiting for Cluster c0 (requested ")
                && text.ends_with(" and 995 more resources"),
            "{text}"
        );
        assert!(text.len() < 500, "{text}");
        (1..1000).for_each(|number| missing.ended(&WatchId(number)));
        let text = missing.to_string();
        assert!(
            text.starts_with("; waiting for Cluster c0 (requested ") && text.ends_with(" ago)"),
            "{text}"
        );
        missing.ended(&WatchId(0));
        assert_eq!(missing.to_string(), "");
    }

    #[test]
    fn errors_name_a_bounded_number_of_connection_attempts() {
        let connecting = Connecting::default();
        for number in 0..1000 {
            connecting.began((SubchannelId(number), AttemptId(1)), ([10, 0, 0, 1], 80).into());
        }
        let text = connecting.to_string();
        assert!(text.starts_with(", connecting to 10.0.0.1:80, 10.0.0.1:80"), "{text}");
        assert!(text.ends_with(" and 995 more") && text.len() < 120, "{text}");
        (1..1000).for_each(|number| connecting.ended(&(SubchannelId(number), AttemptId(1))));
        assert_eq!(connecting.to_string(), ", connecting to 10.0.0.1:80");
        connecting.ended(&(SubchannelId(0), AttemptId(1)));
        assert_eq!(connecting.to_string(), "");
    }
}
