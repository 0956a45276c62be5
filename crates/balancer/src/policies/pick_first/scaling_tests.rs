//! pick_first above subchannels with several connections (gRFC A105).

use std::sync::Arc;
use std::time::Duration;

use super::PickFirstConfig;
use crate::api::{
    Below, ConfigError, ConnectionLimit, ConnectivityState, Cx, Fields, Layer, Layered, SubchannelHandle,
    SubchannelSpec, Update, config_of,
};
use crate::policy_config;
use crate::testing::{Bench, address, endpoints};

/// A layer that allows two connections.
#[derive(Clone, Debug, PartialEq)]
struct TwoConfig;

policy_config!(TwoConfig, "two_connections", Layered::<Two>::default(), |_config| Fields::default());

#[derive(Default)]
struct Two(ConnectionLimit);

impl Layer for Two {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let _: &TwoConfig = config_of("two_connections", &update.config)?;
        self.0.set(Some(2));
        let update = Update { config: Arc::new(PickFirstConfig::default()), ..update.clone() };
        below.update(&update, self, cx)
    }

    fn create_subchannel(&mut self, mut spec: SubchannelSpec, cx: &mut dyn Cx) -> SubchannelHandle {
        spec.connection_limit = Some(self.0.clone());
        cx.create_subchannel(spec)
    }
}

/// The first of two addresses is connected, and a second connection to it is attempted.
fn scaling() -> Bench {
    let mut bench = Bench::new();
    bench.update(Arc::new(TwoConfig), endpoints(1..=2));
    bench.ready(address(1));
    bench.set_queued(address(1), 1);
    assert_eq!(bench.connecting(), [address(1)]);
    bench.take_reresolutions();
    bench.take_published();
    bench
}

#[test]
fn a105_14_further_connections_do_not_change_the_state() {
    let mut bench = scaling();
    bench.ready(address(1));
    bench.set_queued(address(1), 0);
    bench.advance(Duration::from_secs(2));
    bench.close(address(1));
    assert_eq!(bench.state(), ConnectivityState::Ready);
    assert_eq!(bench.take_reresolutions(), 0);
    assert_eq!(bench.picks(2), [address(1); 2]);
    bench.close(address(1));
    assert_eq!((bench.state(), bench.take_reresolutions()), (ConnectivityState::Idle, 1));
}

#[test]
fn a105_19_ready_to_connecting_starts_a_pass_over_all_addresses() {
    let mut bench = scaling();
    bench.close(address(1));
    assert_eq!((bench.state(), bench.take_reresolutions()), (ConnectivityState::Connecting, 1));
    assert_eq!(bench.connecting(), [address(1)], "the attempt in flight counts");
    bench.advance(Duration::from_millis(250));
    assert_eq!(bench.connecting(), [address(1), address(2)]);
    // As the queue does when its last connection is lost.
    bench.set_queued(address(1), 0);
    bench.ready(address(1));
    assert_eq!(bench.picks(2), [address(1); 2]);
    assert!(bench.connecting().is_empty());
}

#[test]
fn a105_19_ready_to_transient_failure_starts_a_pass_over_all_addresses() {
    let mut bench = scaling();
    bench.fail(address(1));
    assert_eq!(bench.state(), ConnectivityState::Ready);
    bench.close(address(1));
    assert_eq!((bench.state(), bench.take_reresolutions()), (ConnectivityState::Connecting, 1));
    assert_eq!(bench.connecting(), [address(2)], "the first address is in backoff");
    bench.fail(address(2));
    assert_eq!(bench.state(), ConnectivityState::TransientFailure);
}
