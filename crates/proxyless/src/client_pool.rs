//! The xDS clients that channels share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, io};

use proxyless_mesh::policies::custom::Registry;
use proxyless_sans_io::metrics::Meter;
use proxyless_tls::ClientTls;
use proxyless_transport::Connector;
use proxyless_xds::bootstrap::Bootstrap;
use proxyless_xds::client::{NackMode, WatcherId, XdsCoreConfig};
use proxyless_xds::{Gates, Limits};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::clock;
use crate::drive::channel;
use crate::drive::security::MaybeTls;
use crate::drive::xds::{Dump, XdsClient};
use crate::inspect::{ChannelView, ClientView, ExplainRequest, Explanation, ResourceView, UpdatesView};

/// The time limit for all channels together to answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(1);

/// Whether channels with the same bootstrap share one xDS client, and thus one ADS stream. They must have the same
/// [policies](crate::XdsChannelBuilder::policies), too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientSharing {
    /// One client for all channels of the process that have the same bootstrap and options; but one for each target
    /// where an authority of the bootstrap has several servers, so that the fallback of one target (gRFC A71) does not
    /// change the servers of others.
    #[default]
    Automatic,
    /// One client for all channels of the process that have the same bootstrap and options.
    PerProcess,
    /// One client for each target.
    PerTarget,
}

/// The xDS clients that channels share, and the channels themselves, for inspection. Clones share the pool.
///
/// Channels use [`ClientPool::global`] unless they are built with a different one, which isolates tests.
#[derive(Clone, Default)]
pub struct ClientPool(Arc<Listed>);

/// Being listed keeps neither clients nor channels alive.
#[derive(Default)]
struct Listed {
    /// Set in simulations: clients run in the runtimes that start them, and connect through this.
    connector: Option<Arc<dyn Connector>>,
    clients: Mutex<Vec<Entry>>,
    /// The TLS of each bootstrap in use.
    tls: Mutex<Vec<(Arc<Bootstrap>, Weak<ClientTls>)>>,
    /// The inboxes of drivers, with the ids of their channels.
    channels: Mutex<Vec<(u64, WeakUnboundedSender<channel::Command>)>>,
}

struct Entry {
    key: ClientKey,
    client: Weak<XdsClient>,
    /// The process of its thread: a forked process has a copy of the entry, but not the thread.
    process: u32,
}

/// The properties that clients must share to be one.
#[derive(Clone, PartialEq)]
pub(crate) struct ClientKey {
    pub(crate) bootstrap: Arc<Bootstrap>,
    /// Set if each target has its own client.
    pub(crate) target: Option<Arc<str>>,
    pub(crate) nack_mode: NackMode,
    pub(crate) gates: Gates,
    pub(crate) limits: Limits,
    /// A52: by identity. What one client rejects another may accept.
    pub(crate) policies: Registry,
    pub(crate) resource_timeout: Option<Duration>,
}

impl Entry {
    /// Describes the client without its resources.
    fn view(client: &XdsClient) -> ClientView {
        ClientView {
            scope: None,
            server_uri: Arc::clone(&client.server_uri),
            node: client.node.clone(),
            resources: Vec::new(),
            updates: Vec::new(),
        }
    }
}

impl ClientPool {
    /// Creates an isolated pool.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A pool whose clients are tasks of the runtimes that start them.
    #[cfg(feature = "simulation")]
    pub(crate) fn in_runtime(connector: Arc<dyn Connector>) -> Self {
        Self(Arc::new(Listed { connector: Some(connector), ..Listed::default() }))
    }

    /// The pool of the process.
    #[must_use]
    pub fn global() -> Self {
        static GLOBAL: std::sync::LazyLock<ClientPool> = std::sync::LazyLock::new(ClientPool::new);
        GLOBAL.clone()
    }

    /// Describes each running client, in the order in which the clients started: once for each target that uses it, with
    /// the resources of that target.
    pub async fn clients(&self) -> Vec<ClientView> {
        let asked: Vec<_> = {
            let entries = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let own = entries.iter().filter(|entry| entry.process == std::process::id());
            let running = own.filter_map(|entry| Some((entry, entry.client.upgrade()?)));
            // The clients themselves are not held: inspecting one must not keep it alive.
            running.map(|(_, client)| (Entry::view(&client), client.dump())).collect()
        };
        let mut views = Vec::new();
        for (mut view, answer) in asked {
            if let Ok(held) = answer.await {
                view.updates =
                    held.updates.iter().map(|(&of, &counts)| UpdatesView::new(of, counts)).collect();
                views.extend(by_target(&view, &held));
            }
        }
        views
    }

    /// Describes each channel, in the order in which the channels were made. A channel that does not answer within a
    /// second is left out: its runtime is not running. May be polled outside of a tokio runtime; the second is then
    /// measured on a thread of its own.
    pub async fn channels(&self) -> Vec<ChannelView> {
        let asked: Vec<_> = {
            let channels = self.0.channels.lock().unwrap_or_else(PoisonError::into_inner);
            let live = channels.iter().filter_map(|(_, commands)| commands.upgrade());
            live.map(|commands| channel::describe(&commands)).collect()
        };
        if Handle::try_current().is_ok() { in_time(asked).await } else { on_a_thread(in_time(asked)).await }
    }

    /// Explains a call on the channel of this [id](ChannelView::id), as [`XdsChannel::explain`](crate::XdsChannel::explain)
    /// does. `None` if there is no such channel, or it does not answer within a second: its runtime is not running. Needs
    /// a tokio runtime with timers.
    pub async fn explain(&self, channel: u64, request: ExplainRequest) -> Option<Explanation> {
        let commands = {
            let channels = self.0.channels.lock().unwrap_or_else(PoisonError::into_inner);
            let listed = channels.iter().find(|(id, _)| *id == channel);
            listed.and_then(|(_, commands)| commands.upgrade())?
        };
        let answer = channel::explain(&commands, request);
        // Explaining does not keep the channel alive.
        drop(commands);
        timeout(LONGEST_ANSWER, answer).await.ok().flatten()
    }

    /// Lists a channel by its driver's inbox.
    pub(crate) fn list(&self, id: u64, commands: &UnboundedSender<channel::Command>) {
        let mut channels = self.0.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|(_, channel)| channel.strong_count() > 0);
        channels.push((id, commands.downgrade()));
    }

    /// The TLS of all channels and clients with this bootstrap: they share certificate files and sessions.
    pub(crate) fn tls(&self, bootstrap: &Arc<Bootstrap>) -> MaybeTls {
        let mut known = self.0.tls.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, tls)| tls.strong_count() > 0);
        let same = known.iter().find(|(other, _)| other == bootstrap);
        if let Some(tls) = same.and_then(|(_, tls)| tls.upgrade()) {
            return Ok(tls);
        }
        let tls = Arc::new(ClientTls::new(bootstrap).map_err(|error| Arc::from(error.to_string()))?);
        known.push((Arc::clone(bootstrap), Arc::downgrade(&tls)));
        Ok(tls)
    }

    /// The same bootstrap, in the memory of a running client's if that is equal.
    pub(crate) fn share(&self, bootstrap: Bootstrap) -> Arc<Bootstrap> {
        let entries = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.iter().filter(|entry| entry.client.strong_count() > 0);
        let same = known.map(|entry| &entry.key.bootstrap).find(|known| ***known == bootstrap);
        same.map_or_else(|| Arc::new(bootstrap), Arc::clone)
    }

    fn client(&self, key: &ClientKey, process: u32) -> io::Result<Arc<XdsClient>> {
        let mut entries = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Channels may still hold a client that panicked, or that was left behind by a fork.
        let runs = |client: Arc<XdsClient>| !client.has_ended();
        entries.retain(|entry| entry.process == process && entry.client.upgrade().is_some_and(runs));
        let known = entries.iter().find(|entry| entry.key == *key).and_then(|entry| entry.client.upgrade());
        if let Some(client) = known {
            return Ok(client);
        }
        let client = key.start(self.0.connector.clone(), self.tls(&key.bootstrap))?;
        entries.push(Entry { key: key.clone(), client: Arc::downgrade(&client), process });
        Ok(client)
    }
}

/// A71-04: a view for each target, in the order in which the targets joined, with the resources that it uses.
fn by_target(client: &ClientView, held: &Dump) -> Vec<ClientView> {
    let mut targets: Vec<_> = held.targets.values().collect();
    let mut seen = BTreeSet::new();
    targets.retain(|target| seen.insert(Arc::clone(target)));
    let view = |target: &Arc<str>| {
        let uses = |watcher: &WatcherId| held.targets.get(watcher) == Some(target);
        let resources = held.resources.iter().filter(|resource| resource.watchers.iter().any(uses));
        let resources: Vec<_> = resources.cloned().collect();
        let servers: BTreeSet<_> = resources.iter().map(|resource| &*resource.server).collect();
        let server_uri = match servers.len() {
            0 => Arc::clone(&client.server_uri),
            _ => servers.into_iter().collect::<Vec<_>>().join(", ").into(),
        };
        ClientView {
            scope: Some(Arc::clone(target)),
            server_uri,
            resources: resources.into_iter().map(ResourceView::new).collect(),
            ..client.clone()
        }
    };
    targets.into_iter().map(view).collect()
}

/// The answers that arrive within the time limit.
async fn in_time(asked: Vec<impl Future<Output = Option<ChannelView>>>) -> Vec<ChannelView> {
    let mut views = Vec::new();
    let patience = Instant::now() + LONGEST_ANSWER;
    for answer in asked {
        // A channel that ended meanwhile does not answer.
        views.extend(timeout_at(patience, answer).await.ok().flatten());
    }
    views
}

/// Runs a future on a thread with timers; returns the default if no thread can be started.
async fn on_a_thread<T: Default + Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("xds-views".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        // The caller may have been dropped.
        let _ = runtime.map(|runtime| sender.send(runtime.block_on(future)));
    });
    match thread {
        Ok(_) => result.await.unwrap_or_default(),
        Err(_) => T::default(),
    }
}

impl fmt::Debug for ClientPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientPool")
    }
}

impl ClientKey {
    fn start(&self, connector: Option<Arc<dyn Connector>>, tls: MaybeTls) -> io::Result<Arc<XdsClient>> {
        let mut config = XdsCoreConfig::new(&self.bootstrap, self.gates, clock::seed());
        config.nack_mode = self.nack_mode;
        config.limits = self.limits;
        config.policies = self.policies.for_client();
        // A29-05: validated whatever the credentials of the channels are.
        config.certificate_providers = Some(Arc::new(self.bootstrap.certificate_provider_names()));
        if let Some(timeout) = self.resource_timeout {
            config.resource_timeout = Some(timeout);
        }
        XdsClient::start(config, &self.bootstrap, connector, &tls)
    }
}

/// Provides a channel's client when it first needs one (A27-35).
#[derive(Clone)]
pub(crate) struct ClientSource {
    pub(crate) pool: ClientPool,
    pub(crate) key: ClientKey,
    /// The target of the channel.
    pub(crate) target: Arc<str>,
    /// The authority by which the channel chooses its virtual host.
    pub(crate) authority: Arc<str>,
    /// The recorders of the channel.
    pub(crate) meter: Meter,
}

impl ClientSource {
    pub(crate) fn client(&self) -> io::Result<Arc<XdsClient>> {
        self.pool.client(&self.key, std::process::id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shared_by_equal_keys_and_not_with_a_process_that_was_forked() {
        let json =
            r#"{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}]}"#;
        let key = ClientKey {
            bootstrap: Arc::new(Bootstrap::from_json(json).unwrap()),
            target: None,
            nack_mode: NackMode::default(),
            gates: Gates::default(),
            limits: Limits::default(),
            policies: Registry::new(),
            resource_timeout: None,
        };
        let pool = ClientPool::new();
        let parents = pool.client(&key, 1).unwrap();
        assert!(Arc::ptr_eq(&parents, &pool.client(&key, 1).unwrap()));
        let childs = pool.client(&key, 2).unwrap();
        assert!(!Arc::ptr_eq(&parents, &childs));
        assert!(Arc::ptr_eq(&childs, &pool.client(&key, 2).unwrap()));
    }
}
