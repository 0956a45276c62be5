//! A61 "Generic Health Reporting Mechanism": connections are managed by connectivity, petiole policies see health.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proxyless_sans_io::{Rng, Time};

use super::PickFirstConfig;
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{
    Child, ChildIndex, ConfigError, ConnectivityState, Cx, Id, PickError, Picker, Policy, PolicyConfig,
    PolicyEvent, Signal, Subchannel, SubchannelEvent, SubchannelSpec, Timer, TreePath, TreePathBuf, Update,
    config_of,
};
use crate::policies::round_robin::RoundRobinConfig;
use crate::policy_config;
use crate::testing::{Bench, Picked, address, endpoints};

/// A wrapper that ejects the `n`th address, like outlier detection.
#[derive(Debug)]
struct Eject(Option<u16>, Arc<dyn PolicyConfig>);

impl PartialEq for Eject {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 && *self.1 == *other.1
    }
}

policy_config!(Eject, "eject", EjectPolicy::default());

thread_local! {
    /// The state that the child has published when its update returns.
    static AFTER_UPDATE: Cell<Option<ConnectivityState>> = const { Cell::new(None) };
}

#[derive(Default)]
struct EjectPolicy {
    child: Option<Child>,
    ejected: Option<u16>,
    known: Known,
}

#[derive(Default)]
struct Known {
    created: BTreeMap<Id, (SubchannelSpec, Option<SubchannelEvent>)>,
}

impl EjectPolicy {
    fn rewritten(&self, event: &SubchannelEvent) -> SubchannelEvent {
        let address_of = |n: u16| Some(address(n));
        let target = self.known.created.get(&event.subchannel).map(|(spec, _)| spec.address);
        let ejected = target.is_some() && target == self.ejected.and_then(address_of);
        if ejected && event.state == Ready {
            let error = Some(PickError::unavailable("ejected"));
            return SubchannelEvent { health: TransientFailure, error, ..event.clone() };
        }
        event.clone()
    }

    fn fold(&mut self, cx: &mut dyn Cx) {
        if let Some(child) = self.child.as_mut().filter(|child| child.output().dirty) {
            child.take_dirty();
            cx.publish(child.output().state, Arc::clone(&child.output().picker));
        }
    }

    fn deliver(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        let event = self.rewritten(event);
        if let (Some(child), Some((_, rest))) = (&mut self.child, path.next()) {
            child.on_subchannel(rest, &event, &mut Watch { cx, known: &mut self.known });
        }
    }
}

impl Policy for EjectPolicy {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let Eject(ejected, config) = config_of("eject", &update.config)?;
        let update = Update { config: Arc::clone(config), ..update.clone() };
        let child = self.child.get_or_insert_with(|| Child::new(ChildIndex(0), config));
        child.update(&update, &mut Watch { cx, known: &mut self.known })?;
        AFTER_UPDATE.set(Some(child.output().state));
        if std::mem::replace(&mut self.ejected, *ejected) != *ejected {
            let events: Vec<_> = self.known.created.values().cloned().collect();
            for (spec, event) in events {
                if let Some(event) = event {
                    self.deliver(spec.path.path(), &event, cx);
                }
            }
        }
        self.fold(cx);
        Ok(())
    }

    fn on_subchannel(&mut self, path: TreePath<'_>, event: &SubchannelEvent, cx: &mut dyn Cx) {
        if let Some((_, last)) = self.known.created.get_mut(&event.subchannel) {
            *last = Some(event.clone());
        }
        self.deliver(path, event, cx);
        self.fold(cx);
    }

    fn on_timer(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if let (Some(child), Some((_, rest))) = (&mut self.child, path.next()) {
            child.on_timer(rest, tag, &mut Watch { cx, known: &mut self.known });
        }
        self.fold(cx);
    }

    fn on_signal(&mut self, path: TreePath<'_>, tag: u32, cx: &mut dyn Cx) {
        if let (Some(child), Some((_, rest))) = (&mut self.child, path.next()) {
            child.on_signal(rest, tag, &mut Watch { cx, known: &mut self.known });
        }
        self.fold(cx);
    }
    fn exit_idle(&mut self, _: &mut dyn Cx) {}
}

/// Records the subchannels that pass through.
struct Watch<'a> {
    cx: &'a mut dyn Cx,
    known: &'a mut Known,
}

impl Cx for Watch<'_> {
    fn now(&self) -> Time {
        self.cx.now()
    }
    fn rng(&mut self) -> &mut Rng {
        self.cx.rng()
    }
    fn create_subchannel(&mut self, spec: SubchannelSpec) -> Subchannel {
        let subchannel = self.cx.create_subchannel(spec.clone());
        self.known.created.insert(subchannel.id(), (spec, None));
        subchannel
    }
    fn connect(&mut self, subchannel: &Subchannel) {
        self.cx.connect(subchannel);
    }
    fn set_timer(&mut self, path: TreePathBuf, delay: Duration, tag: u32) -> Timer {
        self.cx.set_timer(path, delay, tag)
    }
    fn create_signal(&mut self, path: TreePathBuf, tag: u32) -> Signal {
        self.cx.create_signal(path, tag)
    }
    fn defer(&mut self, signal: &Signal) {
        self.cx.defer(signal);
    }
    fn publish(&mut self, state: ConnectivityState, picker: Arc<dyn Picker>) {
        self.cx.publish(state, picker);
    }
    fn bump(&mut self) {
        self.cx.bump();
    }
    fn request_reresolution(&mut self) {
        self.cx.request_reresolution();
    }
    fn record(&mut self, event: PolicyEvent) {
        self.cx.record(event);
    }
}

fn eject(
    bench: &mut Bench,
    ejected: Option<u16>,
    config: Arc<dyn PolicyConfig>,
    numbers: std::ops::RangeInclusive<u16>,
) {
    bench.update(Arc::new(Eject(ejected, config)), endpoints(numbers));
}

fn petiole() -> Arc<dyn PolicyConfig> {
    Arc::new(PickFirstConfig::for_petiole())
}

#[test]
fn a61_pick_first_reports_health_under_a_petiole() {
    let mut bench = Bench::new();
    eject(&mut bench, None, petiole(), 1..=1);
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
    bench.take_effects();
    eject(&mut bench, Some(1), petiole(), 1..=1);
    assert_eq!(bench.state(), TransientFailure);
    assert_eq!(bench.pick(), Picked::Fail("ejected".into()));
    assert_eq!(bench.take_effects(), [], "health does not touch the connection");
    eject(&mut bench, None, petiole(), 1..=1);
    assert_eq!(bench.state(), Ready);
    assert_eq!(bench.picks(1), [address(1)]);
}

#[test]
fn a31_connection_that_exists_is_published_before_the_update_returns() {
    let mut bench = Bench::new();
    eject(&mut bench, None, Arc::new(RoundRobinConfig), 1..=2);
    bench.ready(address(2));
    eject(&mut bench, None, petiole(), 1..=2);
    assert_eq!(AFTER_UPDATE.get(), Some(Ready));
    assert_eq!(bench.picks(1), [address(2)]);
}

#[test]
fn a61_pick_first_on_its_own_ignores_health() {
    let config: Arc<dyn PolicyConfig> = Arc::new(PickFirstConfig::default());
    let mut bench = Bench::new();
    eject(&mut bench, Some(1), Arc::clone(&config), 1..=1);
    bench.ready(address(1));
    assert_eq!(bench.state(), Ready);
    eject(&mut bench, None, config, 1..=1);
    assert_eq!(bench.picks(1), [address(1)]);
}

#[test]
fn a61_connection_that_is_unhealthy_from_the_start_is_kept_and_reported() {
    let mut bench = Bench::new();
    eject(&mut bench, Some(1), petiole(), 1..=2);
    bench.ready(address(1));
    assert_eq!(bench.state(), TransientFailure);
    assert!(bench.connecting().is_empty(), "happy eyeballs is over: it is connected");
}

#[test]
fn a61_unhealthy_connection_that_is_lost_goes_idle() {
    let mut bench = Bench::new();
    eject(&mut bench, Some(1), petiole(), 1..=1);
    bench.ready(address(1));
    bench.close(address(1));
    assert_eq!(bench.state(), Idle);
}

#[test]
fn a61_round_robin_leaves_unhealthy_endpoints_out() {
    let config: Arc<dyn PolicyConfig> = Arc::new(RoundRobinConfig);
    let mut bench = Bench::new();
    eject(&mut bench, None, Arc::clone(&config), 1..=3);
    bench.ready_all();
    bench.take_effects();
    eject(&mut bench, Some(2), Arc::clone(&config), 1..=3);
    assert_eq!(bench.picked(10), [address(1), address(3)].into());
    eject(&mut bench, None, config, 1..=3);
    assert_eq!(bench.picked(10).len(), 3);
    assert_eq!(bench.take_effects(), []);
}

#[test]
fn a61_round_robin_counts_a_lost_unhealthy_endpoint_as_failing_until_ready() {
    let config: Arc<dyn PolicyConfig> = Arc::new(RoundRobinConfig);
    let mut bench = Bench::new();
    eject(&mut bench, Some(1), Arc::clone(&config), 1..=1);
    bench.ready_all();
    assert_eq!(bench.state(), TransientFailure);
    bench.take_states();
    bench.close(address(1));
    assert_eq!(bench.connecting(), [address(1)], "the petiole connects it again");
    assert_ne!(bench.state(), Connecting);
    eject(&mut bench, None, config, 1..=1);
    bench.ready(address(1));
    assert_eq!(bench.take_states().into_iter().filter(|&state| state == Ready).count(), 1);
}
