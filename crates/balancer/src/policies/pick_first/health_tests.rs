//! A61 "Generic Health Reporting Mechanism": connections are managed by connectivity, petiole policies see health.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::PickFirstConfig;
use crate::api::ConnectivityState::{Connecting, Idle, Ready, TransientFailure};
use crate::api::{
    Below, ConfigError, ConnectivityState, Cx, HandleId, Layer, Layered, PickError, PolicyConfig,
    SubchannelEvent, SubchannelHandle, SubchannelSpec, TreeEvent, Update, config_of,
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

policy_config!(Eject, "eject", Layered::<EjectLayer>::default());

thread_local! {
    /// The state that the child has published when its update returns.
    static AFTER_UPDATE: Cell<Option<ConnectivityState>> = const { Cell::new(None) };
}

#[derive(Default)]
struct EjectLayer {
    ejected: Option<u16>,
    created: BTreeMap<HandleId, (SubchannelSpec, Option<SubchannelEvent>)>,
}

impl EjectLayer {
    fn rewritten<'a>(&self, event: &'a SubchannelEvent) -> Cow<'a, SubchannelEvent> {
        let target = self.created.get(&event.subchannel).map(|(spec, _)| spec.address);
        let ejected = target.is_some() && target == self.ejected.map(address);
        if ejected && event.state == Ready {
            let error = Some(PickError::unavailable("ejected"));
            return Cow::Owned(SubchannelEvent { health: TransientFailure, error, ..event.clone() });
        }
        Cow::Borrowed(event)
    }
}

impl Layer for EjectLayer {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let Eject(ejected, config) = config_of("eject", &update.config)?;
        below.update(&Update { config: Arc::clone(config), ..update.clone() }, self, cx)?;
        AFTER_UPDATE.set(below.output().map(|output| output.state));
        if std::mem::replace(&mut self.ejected, *ejected) != *ejected {
            let events: Vec<_> = self.created.values().cloned().collect();
            for (spec, event) in events {
                if let Some(event) = event {
                    let event = self.rewritten(&event);
                    below.on_event(spec.path.path(), TreeEvent::Subchannel(&event), self, cx);
                }
            }
        }
        Ok(())
    }

    fn on_subchannel<'a>(
        &mut self,
        event: &'a SubchannelEvent,
        _: &mut dyn Cx,
    ) -> Option<Cow<'a, SubchannelEvent>> {
        if let Some((_, last)) = self.created.get_mut(&event.subchannel) {
            *last = Some(event.clone());
        }
        Some(self.rewritten(event))
    }

    fn create_subchannel(&mut self, spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        let subchannel = cx.create_subchannel(spec.clone());
        self.created.insert(subchannel.id(), (spec, None));
        subchannel
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
