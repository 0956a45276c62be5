//! For tests of policies with children: scripted children, and a context that records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use proxyless_sans_io::metrics::Meter;
use proxyless_sans_io::{Rng, Time};

use crate::api::{
    CallAttributes, ConfigError, ConnectivityState, Cx, Endpoints, HandleId, PickArgs, PickError, PickResult,
    Picker, Policy, PolicyConfig, PolicyEvent, PolicyView, Releases, Signal, SignalQueue, SubchannelHandle,
    SubchannelSpec, Timer, TreeEvent, TreePath, TreePathBuf, Update, config_of,
};
use crate::testing::NoWake;

const PUBLISH: u32 = 1;
const RERESOLVE: u32 = 2;

/// The state shared by a test and its stub children.
#[derive(Clone, Debug, Default)]
pub(super) struct World(Arc<Mutex<Facts>>);

#[derive(Debug, Default)]
pub(super) struct Facts {
    /// A timer of each live child, which identifies its path.
    handles: BTreeMap<String, HandleId>,
    /// The state that a child publishes when it is updated.
    pub(super) on_update: BTreeMap<String, ConnectivityState>,
    /// The state that a child publishes when it is told to leave IDLE.
    pub(super) on_exit_idle: BTreeMap<String, ConnectivityState>,
    /// `update NAME`, `exit_idle NAME`, `drop NAME`, in order.
    log: Vec<String>,
    say: Option<ConnectivityState>,
}

impl World {
    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        // Also dropped children look here, perhaps while a failed assertion unwinds.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of the children since the last call.
    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.facts().log)
    }

    /// The configuration of a child with this name.
    pub(super) fn child(&self, name: &str) -> Arc<dyn PolicyConfig> {
        self.child_version(name, 0)
    }

    /// A different version of its configuration.
    pub(super) fn child_version(&self, name: &str, version: u32) -> Arc<dyn PolicyConfig> {
        Arc::new(StubConfig { name: name.to_owned(), version, world: self.clone() })
    }
}

#[derive(Debug)]
struct StubConfig {
    name: String,
    version: u32,
    world: World,
}

impl PartialEq for StubConfig {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.version == other.version
    }
}

crate::policy_config!(StubConfig, "stub", Stub::default());

#[derive(Default)]
struct Stub {
    live: Option<(String, World, Timer)>,
}

impl Stub {
    fn publish(&self, state: Option<ConnectivityState>, cx: &mut dyn Cx) {
        if let (Some(state), Some((name, ..))) = (state, &self.live) {
            cx.publish(state, Arc::new(StubPicker { name: name.clone(), state }));
        }
    }
}

impl Policy for Stub {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let config: &StubConfig = config_of("stub", &update.config)?;
        let name = config.name.clone();
        let mut facts = config.world.facts();
        let mut ports = Vec::new();
        update.endpoints.flatten(&mut |endpoint| ports.push(endpoint.addresses[0].port()));
        facts.log.push(format!("update {name} {ports:?}"));
        if self.live.is_none() {
            let timer = cx.set_timer(TreePathBuf::default(), Duration::MAX, 0);
            facts.handles.insert(name.clone(), timer.id());
            self.live = Some((name.clone(), config.world.clone(), timer));
        }
        let state = facts.on_update.get(&name).copied();
        drop(facts);
        self.publish(state, cx);
        Ok(())
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        assert!(path.next().is_none());
        let TreeEvent::Timer(tag) = event else { return };
        let (_, world, _) = self.live.as_ref().unwrap();
        match tag {
            PUBLISH => {
                let state = world.facts().say.take();
                self.publish(state, cx);
            }
            RERESOLVE => cx.request_reresolution(),
            _ => panic!("unexpected tag {tag}"),
        }
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        let (name, world, _) = self.live.as_ref().unwrap();
        world.facts().log.push(format!("exit_idle {name}"));
        let state = world.facts().on_exit_idle.get(name).copied();
        self.publish(state, cx);
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        if let Some((name, world, _)) = &self.live {
            let mut facts = world.facts();
            facts.log.push(format!("drop {name}"));
            facts.handles.remove(name);
        }
    }
}

/// Fails picks with the child's name.
struct StubPicker {
    name: String,
    state: ConnectivityState,
}

impl Picker for StubPicker {
    fn pick(&self, _: &mut PickArgs<'_>) -> PickResult {
        PickResult::Fail(PickError::unavailable(format!("{} {}", self.name, self.state)))
    }
}

/// Runs one policy with stub children.
pub(super) struct Rig {
    policy: Box<dyn Policy>,
    pub(super) world: World,
    pub(super) cx: Recorder,
}

impl Rig {
    pub(super) fn new(policy: impl Policy + 'static) -> Self {
        Self { policy: Box::new(policy), world: World::default(), cx: Recorder::new() }
    }

    pub(super) fn describe(&self) -> PolicyView {
        self.policy.describe(self.cx.now)
    }

    pub(super) fn update(
        &mut self,
        config: impl PolicyConfig,
        endpoints: Endpoints,
    ) -> Result<(), ConfigError> {
        self.update_with(&Update::new(Arc::new(config), endpoints))
    }

    pub(super) fn update_with(&mut self, update: &Update) -> Result<(), ConfigError> {
        let result = self.policy.update(update, &mut self.cx);
        self.cx.forget_released();
        result
    }

    /// Makes a child publish.
    pub(super) fn say(&mut self, child: &str, state: ConnectivityState) {
        self.world.facts().say = Some(state);
        self.poke(child, PUBLISH);
    }

    /// Makes a child request re-resolution.
    pub(super) fn ask_reresolution(&mut self, child: &str) {
        self.poke(child, RERESOLVE);
    }

    pub(super) fn exists(&self, child: &str) -> bool {
        self.world.facts().handles.contains_key(child)
    }

    fn poke(&mut self, child: &str, tag: u32) {
        let id = *self.world.facts().handles.get(child).unwrap_or_else(|| panic!("no child {child}"));
        let (path, ..) = self.cx.timers[&id].clone();
        self.policy.on_event(path.path(), TreeEvent::Timer(tag), &mut self.cx);
        self.cx.forget_released();
    }

    pub(super) fn exit_idle(&mut self) {
        self.policy.exit_idle(&mut self.cx);
        self.cx.forget_released();
    }

    /// Advances time and fires timers.
    pub(super) fn advance(&mut self, span: Duration) {
        let end = self.cx.now + span;
        while let Some((at, id)) = self.cx.timers.iter().map(|(id, (_, at, _))| (*at, *id)).min() {
            if at > end {
                break;
            }
            self.cx.now = at;
            let (path, _, tag) = self.cx.timers.remove(&id).unwrap();
            self.policy.on_event(path.path(), TreeEvent::Timer(tag), &mut self.cx);
            self.cx.forget_released();
        }
        self.cx.now = end;
    }

    /// The last published state.
    pub(super) fn state(&self) -> ConnectivityState {
        self.cx.published.last().expect("nothing published").0
    }

    /// The number of times that the policy has published.
    pub(super) fn publishes(&self) -> usize {
        self.cx.published.len()
    }

    /// The result of a pick: the message of a failure (stub pickers fail with their name), or `queue`.
    pub(super) fn pick(&mut self) -> String {
        let (_, picker) = self.cx.published.last().expect("nothing published").clone();
        let headers = HeaderMap::new();
        let attributes = CallAttributes::default();
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut self.cx.rng };
        match picker.pick(&mut args) {
            PickResult::Queue => "queue".to_owned(),
            PickResult::Fail(error) => error.message.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Drops the policy and returns its context.
    pub(super) fn drop_policy(self) -> Recorder {
        let Self { policy, mut cx, .. } = self;
        drop(policy);
        cx.forget_released();
        cx
    }
}

/// A context that records requests.
pub(super) struct Recorder {
    now: Time,
    rng: Rng,
    meter: Meter,
    queue: SignalQueue,
    releases: Arc<Releases>,
    last_id: u64,
    pub(super) timers: BTreeMap<HandleId, (TreePathBuf, Time, u32)>,
    pub(super) signals: BTreeMap<HandleId, (TreePathBuf, u32)>,
    published: Vec<(ConnectivityState, Arc<dyn Picker>)>,
    pub(super) reresolutions: usize,
    pub(super) events: Vec<String>,
}

impl Recorder {
    fn new() -> Self {
        Self {
            now: Time::ZERO,
            rng: Rng::new(1),
            meter: Meter::default(),
            queue: SignalQueue::new(Arc::new(NoWake)),
            releases: Releases::new(),
            last_id: 0,
            timers: BTreeMap::new(),
            signals: BTreeMap::new(),
            published: Vec::new(),
            reresolutions: 0,
            events: Vec::new(),
        }
    }

    fn next_id(&mut self) -> HandleId {
        self.last_id += 1;
        HandleId(self.last_id)
    }

    fn forget_released(&mut self) {
        for id in self.releases.drain() {
            self.timers.remove(&id);
            self.signals.remove(&id);
        }
    }
}

impl Cx for Recorder {
    fn now(&self) -> Time {
        self.now
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn create_subchannel(&mut self, _: SubchannelSpec) -> SubchannelHandle {
        panic!("stub children have no subchannels")
    }

    fn connect(&mut self, _: &SubchannelHandle) {}

    fn watch_load(&mut self, _: &SubchannelHandle, _: Option<Duration>) {}

    fn connection_limits_changed(&mut self) {}

    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        let id = self.next_id();
        self.timers.insert(id, (path, self.now + delay, tag));
        Timer::new(id, Arc::clone(&self.releases))
    }

    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal {
        let id = self.next_id();
        self.signals.insert(id, (path, tag));
        self.queue.signal(id, Arc::clone(&self.releases))
    }

    fn defer(&mut self, _: &Signal) {}

    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>) {
        self.published.push((state, picker));
    }

    fn bump(&mut self) {}

    fn request_reresolution(&mut self) {
        self.reresolutions += 1;
    }

    fn record(&mut self, event: PolicyEvent) {
        self.events.push(event.to_string());
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

/// Groups with these names, each with endpoints on these ports of the loopback address.
pub(super) fn groups(groups: &[(&str, &[u16])]) -> Endpoints {
    let group = |(name, ports): &(&str, &[u16])| crate::api::Group {
        name: (*name).into(),
        weight: 1,
        locality: None,
        endpoints: list(ports),
    };
    Endpoints::Groups(groups.iter().map(group).collect())
}

/// Endpoints on these ports of the loopback address.
pub(super) fn list(ports: &[u16]) -> Endpoints {
    Endpoints::of(ports.iter().map(|&port| crate::api::Endpoint::new(([127, 0, 0, 1], port).into())))
}
