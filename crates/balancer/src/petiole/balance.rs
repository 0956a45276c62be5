//! The helper for an application's own endpoint policies: connections to every endpoint, a picker over the READY ones.
//!
//! [`Balance`] is the small, public form of [`Spread`]: the policy says how to choose among READY endpoints, and
//! [`Balanced`] does the rest.

use std::fmt;
use std::sync::Arc;

use proxyless_sans_io::Time;

use super::{Applied, Member, Spread, SpreadPicker, SpreadPolicy};
use crate::api::{
    CallTracker, ChildIndex, ConfigError, Cx, Endpoint, PickArgs, PickError, PickResult, Picker, Policy,
    PolicyConfig, PolicyView, SubchannelHandle, SubchannelSpec, TreeEvent, TreePath, Update,
};

/// The specific part of a policy that connects to all its endpoints and chooses among the READY ones for each RPC.
/// [`Balanced`] makes it a policy.
///
/// Endpoints are connected at once and again after a loss. While none is READY, RPCs wait, or fail if all endpoints have
/// failed; the state of the policy is aggregated as in round_robin.
pub trait Balance: Default + Send + 'static {
    /// The policy's name, under which it is registered.
    const NAME: &'static str;
    /// Its configuration.
    type Config: PolicyConfig + Clone + PartialEq;

    /// The picker over the READY endpoints: at least one, in the order of the configuration. Called when these, any
    /// endpoint's attributes or the configuration have changed; the policy itself lives on, with what it keeps in
    /// `self`.
    fn picker(
        &mut self,
        config: &Self::Config,
        ready: Vec<ReadyEndpoint>,
        cx: &mut dyn Cx,
    ) -> Arc<dyn Picker>;

    /// The tracker of all calls on a new connection to this endpoint, if the policy counts them.
    fn tracker(&mut self, _endpoint: &Arc<Endpoint>) -> Option<Arc<dyn CallTracker>> {
        None
    }

    /// Adds counters or details to the description of the policy, which has the endpoints.
    fn describe(&self, _now: Time, _node: &mut PolicyView) {}
}

/// An endpoint with a connection.
#[derive(Clone)]
pub struct ReadyEndpoint {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    picker: Arc<dyn Picker>,
}

impl ReadyEndpoint {
    /// Picks the connection of this endpoint.
    pub fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        self.picker.pick(args)
    }
}

impl fmt::Debug for ReadyEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyEndpoint").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A [`Balance`] as a policy.
pub struct Balanced<B: Balance>(SpreadPolicy<Chooser<B>>);

impl<B: Balance> Default for Balanced<B> {
    fn default() -> Self {
        Self(SpreadPolicy::default())
    }
}

impl<B: Balance> Policy for Balanced<B> {
    fn update(&mut self, update: &Update, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        self.0.update(update, cx)
    }

    fn on_event(&mut self, path: TreePath<'_>, event: TreeEvent<'_>, cx: &mut dyn Cx) {
        self.0.on_event(path, event, cx);
    }

    fn exit_idle(&mut self, cx: &mut dyn Cx) {
        self.0.exit_idle(cx);
    }

    fn describe(&self, now: Time) -> PolicyView {
        self.0.describe(now)
    }
}

/// A [`Balance`] as a [`Spread`].
struct Chooser<B: Balance> {
    balance: B,
    config: Option<B::Config>,
    /// The endpoints of the last update.
    endpoints: Vec<Arc<Endpoint>>,
}

impl<B: Balance> Default for Chooser<B> {
    fn default() -> Self {
        Self { balance: B::default(), config: None, endpoints: Vec::new() }
    }
}

/// The policy's picker, with the pickers of the endpoints that it was made from.
struct ChooserPicker {
    children: Vec<Arc<dyn Picker>>,
    picker: Arc<dyn Picker>,
}

impl Picker for ChooserPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        self.picker.pick(args)
    }

    fn failure(&self) -> Option<&Arc<PickError>> {
        self.picker.failure()
    }
}

impl SpreadPicker for ChooserPicker {
    fn children(&self) -> &[Arc<dyn Picker>] {
        &self.children
    }
}

impl<B: Balance> Spread for Chooser<B> {
    const NAME: &'static str = B::NAME;
    type Config = B::Config;
    type Picker = ChooserPicker;

    fn configure(&mut self, config: &B::Config, _: &mut dyn Cx) -> Applied {
        if self.config.as_ref() == Some(config) {
            return Applied::SamePicker;
        }
        self.config = Some(config.clone());
        Applied::NewPicker
    }

    /// The picker may use any attribute of the endpoints, also those that their connections do not depend on.
    fn updated(&mut self, members: &[Member], _: &mut dyn Cx) -> Applied {
        let same = |(old, member): (&Arc<Endpoint>, &Member)| Arc::ptr_eq(old, &member.endpoint);
        if self.endpoints.len() == members.len() && self.endpoints.iter().zip(members).all(same) {
            return Applied::SamePicker;
        }
        self.endpoints = members.iter().map(|member| Arc::clone(&member.endpoint)).collect();
        Applied::NewPicker
    }

    fn create_subchannel(
        &mut self,
        _: ChildIndex,
        mut spec: SubchannelSpec,
        cx: &mut dyn Cx,
    ) -> SubchannelHandle {
        if let Some(tracker) = self.balance.tracker(&spec.endpoint) {
            spec.trackers.add(tracker);
        }
        cx.create_subchannel(spec)
    }

    fn picker(
        &mut self,
        ready: &[&Member],
        children: Vec<Arc<dyn Picker>>,
        cx: &mut dyn Cx,
    ) -> Arc<ChooserPicker> {
        let endpoints = ready.iter().zip(&children).map(|(member, picker)| ReadyEndpoint {
            endpoint: Arc::clone(&member.endpoint),
            picker: Arc::clone(picker),
        });
        let endpoints = endpoints.collect();
        let picker = match &self.config {
            Some(config) => self.balance.picker(config, endpoints, cx),
            // Not reached: an update comes first, and it configures.
            None => crate::api::QueuePicker::new(),
        };
        Arc::new(ChooserPicker { children, picker })
    }

    fn describe(&self, now: Time, _: &[Member], node: &mut PolicyView) {
        self.balance.describe(now, node);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::ConnectivityState::{Connecting, Ready, TransientFailure};
    use crate::api::{CallOutcome, CallTicket, Code, Endpoints};
    use crate::testing::{Bench, Picked, address, endpoint, endpoints};

    /// Picks the READY endpoint with the greatest weight.
    #[derive(Default)]
    struct Heaviest {
        pickers: u64,
        started: Arc<Started>,
    }

    #[derive(Clone, Debug, PartialEq)]
    struct HeaviestConfig {
        from_the_end: bool,
    }

    crate::policy_config!(HeaviestConfig, Heaviest::NAME, Balanced::<Heaviest>::default());

    #[derive(Default)]
    struct Started(AtomicUsize);

    impl CallTracker for Started {
        fn started(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn finished(&self, _: &CallOutcome) {}

        fn withdrawn(&self) {}
    }

    impl Balance for Heaviest {
        const NAME: &'static str = "test.Heaviest";
        type Config = HeaviestConfig;

        fn picker(
            &mut self,
            config: &HeaviestConfig,
            mut ready: Vec<ReadyEndpoint>,
            _: &mut dyn Cx,
        ) -> Arc<dyn Picker> {
            self.pickers += 1;
            if config.from_the_end {
                ready.reverse();
            }
            let mut best: Option<ReadyEndpoint> = None;
            for ready in ready {
                if best.as_ref().is_none_or(|best| best.endpoint.weight < ready.endpoint.weight) {
                    best = Some(ready);
                }
            }
            Arc::new(Only(best.expect("at least one is READY")))
        }

        fn tracker(&mut self, _: &Arc<Endpoint>) -> Option<Arc<dyn CallTracker>> {
            Some(Arc::clone(&self.started) as _)
        }

        fn describe(&self, _: Time, node: &mut PolicyView) {
            node.counters.insert("pickers".into(), self.pickers);
            node.counters.insert("started".into(), self.started.0.load(Ordering::Relaxed) as u64);
        }
    }

    struct Only(ReadyEndpoint);

    impl Picker for Only {
        fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
            self.0.pick(args)
        }
    }

    fn config(from_the_end: bool) -> Arc<HeaviestConfig> {
        Arc::new(HeaviestConfig { from_the_end })
    }

    #[test]
    fn it_connects_to_all_endpoints_and_picks_as_the_policy_says() {
        let mut bench = Bench::new();
        bench.update(config(false), endpoints(1..=3));
        assert_eq!((bench.state(), bench.connecting().len()), (Connecting, 3));
        bench.ready(address(2));
        assert_eq!((bench.state(), bench.picks(1)), (Ready, vec![address(2)]));
        bench.ready_all();
        assert_eq!(bench.picks(1), [address(1)]);
        bench.update(config(true), endpoints(1..=3));
        assert_eq!(bench.picks(1), [address(3)]);
        bench.close(address(3));
        assert_eq!(bench.picks(1), [address(2)]);
    }

    #[test]
    fn a_new_weight_makes_a_new_picker_and_an_equal_update_none() {
        let mut bench = Bench::new();
        let list = |weight| Endpoints::of([endpoint(1), Endpoint { weight, ..endpoint(2) }]);
        bench.update(config(false), list(1));
        bench.ready_all();
        assert_eq!(bench.picks(1), [address(1)]);
        bench.take_effects();
        bench.take_published();
        bench.update(config(false), list(1));
        assert_eq!(bench.take_published(), []);
        bench.update(config(false), list(5));
        assert_eq!(bench.picks(1), [address(2)]);
        assert_eq!(bench.take_effects(), []);
    }

    #[test]
    fn failures_are_those_of_the_endpoints_and_trackers_see_calls() {
        let mut bench = Bench::new();
        bench.update(config(false), endpoints([1]));
        bench.fail_with(address(1), "no route");
        assert_eq!(bench.state(), TransientFailure);
        assert!(matches!(bench.pick(), Picked::Fail(message) if message.contains("no route")));
        bench.advance(std::time::Duration::from_secs(200));
        bench.ready(address(1));
        let (headers, mut rng) = (http::HeaderMap::new(), proxyless_sans_io::Rng::new(1));
        let attributes = crate::api::CallAttributes::default();
        let mut args = PickArgs { path: "/s/m", headers: &headers, attributes, rng: &mut rng };
        let PickResult::Complete(pick) = bench.tree().output().picker.pick(&mut args) else {
            panic!("READY")
        };
        CallTicket::start(pick).finish(Code::Ok);
        let now = bench.now();
        let view = bench.tree().describe(now).expect("a policy");
        assert_eq!((view.policy.as_str(), view.counters["started"]), ("test.Heaviest", 1));
        assert_eq!(view.endpoints[0].connected, Some(address(1)));
    }
}
