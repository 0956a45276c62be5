//! A channel's subscription to its xDS client, across panics of the client.

use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::Time;
use proxyless_xds::client::WatchId;
use proxyless_xds::lrs::LoadStore;
use proxyless_xds::resource::ResourceType;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::restarts::Restarts;
use super::xds::{Subscriber, XdsEvent};
use crate::client_pool::ClientSource;
use crate::clock;
use crate::targets;

/// The resource of a watch.
pub(super) type Watched = (WatchId, ResourceType, Arc<str>);

/// The subscription; created with the first watch (A27-35), dropped when the channel is IDLE.
pub(super) struct Subscription {
    clients: ClientSource,
    events: UnboundedSender<Box<XdsEvent>>,
    subscriber: Option<Subscriber>,
    joined: Time,
    /// Set after a panic of the xDS client: the time to join a new one.
    rejoin_at: Option<Time>,
    rejoins: Restarts,
    /// The load stores registered with the xDS client.
    loads: Vec<Arc<LoadStore>>,
}

/// The moment at which the channel joined its xDS client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Now,
    Before,
}

impl Subscription {
    /// Returns the subscription, and the receiver of its events.
    pub(super) fn new(clients: ClientSource) -> (Self, UnboundedReceiver<Box<XdsEvent>>) {
        let (events, xds_events) = unbounded_channel();
        let subscription = Self {
            clients,
            events,
            subscriber: None,
            joined: Time::ZERO,
            rejoin_at: None,
            rejoins: Restarts::default(),
            loads: Vec::new(),
        };
        (subscription, xds_events)
    }

    /// Completes when the xDS client has panicked; pends without a client.
    pub(super) async fn client_ended(&self) {
        match &self.subscriber {
            Some(subscriber) => subscriber.client_ended().await,
            None => std::future::pending().await,
        }
    }

    /// The time at which [`Self::rejoin`] is due.
    pub(super) fn rejoin_at(&self) -> Option<Time> {
        self.rejoin_at
    }

    /// Watches a resource.
    ///
    /// # Errors
    /// The reason why there is no client.
    pub(super) fn watch(&mut self, (watch, resource_type, name): Watched) -> Result<Joined, String> {
        if self.rejoin_at.is_some() {
            // It is requested with the other watches.
            return Ok(Joined::Before);
        }
        let joined = if self.subscriber.is_none() { Joined::Now } else { Joined::Before };
        self.subscriber()?.watch(watch, resource_type, name);
        Ok(joined)
    }

    pub(super) fn unwatch(&self, watch: WatchId) {
        if let Some(subscriber) = &self.subscriber {
            subscriber.unwatch(watch);
        }
    }

    pub(super) fn register_load(&mut self, store: Arc<LoadStore>) {
        self.loads.push(Arc::clone(&store));
        if let Some(subscriber) = &self.subscriber {
            subscriber.register_load(store);
        }
    }

    pub(super) fn unregister_load(&mut self, store: Arc<LoadStore>) {
        self.loads.retain(|known| !Arc::ptr_eq(known, &store));
        if let Some(subscriber) = &self.subscriber {
            subscriber.unregister_load(store);
        }
    }

    /// Leaves the client, which ends with its last channel.
    pub(super) fn leave(&mut self) {
        self.subscriber = None;
        self.rejoin_at = None;
    }

    /// Leaves a client that has panicked. Returns the pause before [`Self::rejoin`].
    pub(super) fn leave_panicked(&mut self) -> Duration {
        let now = clock::now();
        let pause = self.rejoins.pause(now.since(self.joined), &mut clock::rng());
        self.subscriber = None;
        self.rejoin_at = Some(now + pause);
        pause
    }

    /// Joins a new client, with these watches; tries again later if there is none.
    pub(super) fn rejoin(&mut self, watches: Vec<Watched>) {
        let loads = self.loads.clone();
        self.rejoin_at = match self.subscriber() {
            Ok(subscriber) => {
                for (watch, resource_type, name) in watches {
                    subscriber.watch(watch, resource_type, name);
                }
                loads.into_iter().for_each(|store| subscriber.register_load(store));
                None
            }
            Err(_) => Some(clock::now() + self.rejoins.pause(Duration::ZERO, &mut clock::rng())),
        };
    }

    fn subscriber(&mut self) -> Result<&Subscriber, String> {
        let subscriber = match self.subscriber.take() {
            Some(subscriber) => subscriber,
            None => {
                let client = self.clients.client().map_err(|error| {
                    tracing::error!(target: targets::XDS_CLIENT, %error, "cannot start the xDS client");
                    format!("cannot start the xDS client: {error}")
                })?;
                self.joined = clock::now();
                let ClientSource { target, authority, meter, .. } = &self.clients;
                client.join(Arc::clone(target), Arc::clone(authority), meter, self.events.clone())
            }
        };
        Ok(self.subscriber.insert(subscriber))
    }
}
