//! Tests of a subchannel with several connections (gRFC A105).

use super::*;

const MIN: Duration = Duration::from_secs(20);

fn closed() -> ConnectionEvent {
    ConnectionEvent::Closed("reset".into())
}

fn failed() -> ConnectionEvent {
    ConnectionEvent::Failed("connection refused".into())
}

/// A subchannel with the connections `1..=count`, all made at the beginning.
fn with_connections(count: u64) -> (SubchannelCore, Rng) {
    let address = "127.0.0.1:443".parse().unwrap();
    let mut core = SubchannelCore::new(address, Arc::default(), Arc::default());
    let mut rng = Rng::new(1);
    for attempt in 1..=count {
        core.start(Time::ZERO, AttemptId(attempt), MIN, &mut rng);
        core.answer(Time::ZERO, AttemptId(attempt), ConnectionEvent::Ready(Arc::new(attempt)));
    }
    (core, rng)
}

fn names(core: &SubchannelCore) -> Vec<u64> {
    core.connections().map(|AttemptId(attempt)| attempt).collect()
}

/// The connections that calls see.
fn seen(core: &SubchannelCore) -> Vec<u64> {
    let name = |live: &LiveConnection| *live.downcast_ref::<u64>().unwrap();
    core.slot()
        .read(|oldest, newer| Some([oldest].into_iter().chain(newer).map(name).collect()))
        .unwrap_or_default()
}

#[test]
fn a105_06_calls_see_the_connections_in_order_of_age() {
    let (mut core, _) = with_connections(3);
    assert_eq!((names(&core), seen(&core)), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(core.answer(Time::ZERO, AttemptId(1), closed()), Effect::Lost);
    assert_eq!((names(&core), seen(&core)), (vec![2, 3], vec![2, 3]));
    assert_eq!(core.answer(Time::ZERO, AttemptId(3), closed()), Effect::Lost);
    assert_eq!((names(&core), seen(&core)), (vec![2], vec![2]));
    assert_eq!(core.answer(Time::ZERO, AttemptId(3), closed()), Effect::Ignored);
    assert_eq!(
        core.answer(Time::ZERO, AttemptId(2), ConnectionEvent::Ready(Arc::new(2u64))),
        Effect::Ignored
    );
    assert_eq!(
        core.answer(Time::ZERO, AttemptId(9), ConnectionEvent::Ready(Arc::new(9u64))),
        Effect::Unwanted
    );
}

#[test]
fn a105_09_a105_11_one_attempt_at_a_time_and_not_in_backoff() {
    let (mut core, mut rng) = with_connections(1);
    assert!(core.can_scale(2) && !core.can_scale(1));
    core.start(Time::ZERO, AttemptId(2), MIN, &mut rng);
    assert!(!core.can_scale(3), "an attempt is in flight");
    assert!(core.connect(Time::ZERO, AttemptId(9), MIN, &mut rng).is_none());
    core.answer(Time::ZERO, AttemptId(2), failed());
    assert!(!core.can_scale(3), "in backoff");
    assert_eq!((core.state(), core.error()), (ConnectivityState::Ready, None));
    assert!(core.backoff_until().is_some() && core.end_backoff());
    assert!(core.can_scale(3));
    // Without a connection an owner has to ask.
    core.answer(Time::ZERO, AttemptId(1), closed());
    assert!(!core.can_scale(3));
}

/// The length of the next backoff.
fn backoff(core: &mut SubchannelCore, rng: &mut Rng, now: Time, attempt: u64) -> Duration {
    core.start(now, AttemptId(attempt), MIN, rng);
    core.answer(now, AttemptId(attempt), failed());
    let until = core.backoff_until().unwrap();
    core.end_backoff();
    until.since(now)
}

#[test]
fn a105_11_the_backoff_grows_beside_a_live_connection_and_success_resets_it() {
    let (mut core, mut rng) = with_connections(1);
    let mut now = Time::ZERO + MIN;
    let mut waits = Vec::new();
    for attempt in 10..15 {
        waits.push(backoff(&mut core, &mut rng, now, attempt));
        now = now + Duration::from_secs(60);
    }
    assert!(waits.is_sorted() && waits[4] > 4 * waits[0], "{waits:?}");
    // The next one succeeds and proves itself.
    core.start(now, AttemptId(20), MIN, &mut rng);
    core.answer(now, AttemptId(20), ConnectionEvent::Ready(Arc::new(20u64)));
    let now = now + MIN;
    assert!(backoff(&mut core, &mut rng, now, 21) <= Duration::from_millis(1200));
}

#[test]
fn many_connections_at_once_do_not_lengthen_the_backoff() {
    let (mut core, mut rng) = with_connections(9);
    assert!(backoff(&mut core, &mut rng, Time::ZERO, 10) <= Duration::from_millis(1200));
}

/// A server that ends all connections while another attempt is in flight.
#[test]
fn a105_11_an_early_loss_beside_an_attempt_delays_the_next_one() {
    let (mut core, mut rng) = with_connections(3);
    core.start(Time::ZERO, AttemptId(4), MIN, &mut rng);
    for lost in [1, 2, 3] {
        core.answer(Time::ZERO, AttemptId(lost), closed());
    }
    assert_eq!(core.state(), ConnectivityState::Connecting);
    core.answer(Time::ZERO, AttemptId(4), ConnectionEvent::Ready(Arc::new(4u64)));
    assert_eq!(core.state(), ConnectivityState::Ready);
    assert!(!core.can_scale(4), "in backoff");
    assert!(core.backoff_until() > Some(Time::ZERO) && core.end_backoff() && core.can_scale(4));
}

#[test]
fn a_server_that_hangs_up_on_further_connections_gets_one_per_backoff() {
    let (mut core, mut rng) = with_connections(1);
    let (mut now, mut attempts) = (Time::ZERO + MIN, 0);
    let end = now + Duration::from_secs(60);
    while now < end {
        attempts += 1;
        core.start(now, AttemptId(100 + attempts), MIN, &mut rng);
        core.answer(now, AttemptId(100 + attempts), ConnectionEvent::Ready(Arc::new(())));
        now = now + Duration::from_millis(1);
        core.answer(now, AttemptId(100 + attempts), closed());
        now = core.backoff_until().unwrap_or(now);
        core.end_backoff();
        assert_eq!(core.state(), ConnectivityState::Ready);
    }
    assert!((5..=10).contains(&attempts), "{attempts}");
}

#[test]
fn a105_14_one_live_connection_is_ready_whatever_happens_to_others() {
    let (mut core, mut rng) = with_connections(2);
    core.start(Time::ZERO, AttemptId(3), MIN, &mut rng);
    for event in [(3, failed()), (1, ConnectionEvent::GoAway("bye".into()))] {
        core.answer(Time::ZERO, AttemptId(event.0), event.1);
        assert_eq!(core.state(), ConnectivityState::Ready);
    }
}

#[test]
fn a105_15_the_last_loss_during_an_attempt_is_connecting() {
    let (mut core, mut rng) = with_connections(1);
    core.start(Time::ZERO, AttemptId(2), MIN, &mut rng);
    assert_eq!(core.answer(Time::ZERO + MIN, AttemptId(1), closed()), Effect::Lost);
    assert_eq!(core.state(), ConnectivityState::Connecting);
    assert!(!core.slot().is_connected());
    core.answer(Time::ZERO + MIN, AttemptId(2), ConnectionEvent::Ready(Arc::new(2u64)));
    assert_eq!((core.state(), seen(&core)), (ConnectivityState::Ready, vec![2]));
}

#[test]
fn a105_16_the_last_loss_during_a_backoff_is_transient_failure() {
    let (mut core, mut rng) = with_connections(1);
    let now = Time::ZERO + MIN;
    core.start(now, AttemptId(2), MIN, &mut rng);
    core.answer(now, AttemptId(2), failed());
    let until = core.backoff_until();
    core.answer(now, AttemptId(1), closed());
    assert_eq!((core.state(), core.backoff_until()), (ConnectivityState::TransientFailure, until));
    assert_eq!(core.error().unwrap().message, "ipv4:127.0.0.1:443: connection refused");
}

#[test]
fn a105_22_calls_are_counted_by_connection() {
    let (mut core, _) = with_connections(1);
    core.slot().calls().succeeded();
    let mut rng = Rng::new(1);
    let second = core.start(Time::ZERO, AttemptId(2), MIN, &mut rng).calls.unwrap();
    core.answer(Time::ZERO, AttemptId(2), ConnectionEvent::Ready(Arc::new(2u64)));
    // As `CallTicket` counts a call of the second connection.
    core.slot().calls().failed();
    second.failed();
    core.slot().calls().succeeded();
    let calls =
        |core: &SubchannelCore| core.describe().into_iter().map(|node| node.calls).collect::<Vec<_>>();
    assert_eq!(calls(&core), [CallCounts::new(2, 0), CallCounts::new(0, 1)]);
    core.answer(Time::ZERO, AttemptId(2), closed());
    assert_eq!(calls(&core), [CallCounts::new(2, 0)]);
    core.answer(Time::ZERO, AttemptId(1), closed());
    // A new first connection begins at zero.
    core.start(Time::ZERO, AttemptId(3), MIN, &mut rng);
    core.answer(Time::ZERO, AttemptId(3), ConnectionEvent::Ready(Arc::new(3u64)));
    assert_eq!(calls(&core), [CallCounts::new(0, 0)]);
}
