//! Tests of a subchannel with one connection.

use super::live::SETTLED;
use super::*;

const MIN: Duration = Duration::from_secs(20);

fn core() -> (SubchannelCore, Rng) {
    let address = "127.0.0.1:443".parse().unwrap();
    (SubchannelCore::new(address, Arc::default(), Arc::default()), Rng::new(1))
}

fn failed() -> ConnectionEvent {
    ConnectionEvent::Failed("connection refused".into())
}

#[test]
fn backoff_counts_from_the_beginning_of_the_attempt() {
    let (mut core, mut rng) = core();
    let Started { timeout, .. } = core.connect(Time::ZERO, AttemptId(1), MIN, &mut rng).unwrap();
    assert_eq!(timeout, MIN);
    assert_eq!(core.answer(Time::ZERO, AttemptId(1), failed()), Effect::Changed);
    let &Attempt::Backoff { retry_at, .. } = core.attempt() else { panic!("{:?}", core.attempt()) };
    let delay = retry_at.since_epoch().as_secs_f64();
    assert!((0.8..=1.2).contains(&delay), "{delay}");

    // An attempt that took longer than its backoff is followed by the next one at once.
    assert!(core.end_backoff());
    core.connect(Time::ZERO, AttemptId(2), MIN, &mut rng).unwrap();
    let late = Time::ZERO + MIN;
    core.answer(late, AttemptId(2), failed());
    assert!(matches!(core.attempt(), Attempt::Backoff { retry_at, .. } if *retry_at == late));
}

#[test]
fn an_attempt_may_take_as_long_as_its_backoff() {
    let (mut core, mut rng) = core();
    let mut longest = Duration::ZERO;
    for attempt in 0..20 {
        longest = core.connect(Time::ZERO, AttemptId(attempt), MIN, &mut rng).unwrap().timeout;
        core.answer(Time::ZERO, AttemptId(attempt), failed());
        core.end_backoff();
    }
    assert!(longest >= Duration::from_secs(96), "{longest:?}");
}

fn ready() -> ConnectionEvent {
    ConnectionEvent::Ready(Arc::new(()))
}

/// Fails `count` attempts in a row, each at once, starting at `now`; returns the end of the last backoff.
fn fail(core: &mut SubchannelCore, rng: &mut Rng, mut now: Time, count: u64) -> Time {
    for attempt in 0..count {
        core.connect(now, AttemptId(attempt), MIN, rng).unwrap();
        core.answer(now, AttemptId(attempt), failed());
        let &Attempt::Backoff { retry_at, .. } = core.attempt() else { panic!("{:?}", core.attempt()) };
        now = retry_at;
        core.end_backoff();
    }
    now
}

/// The backoff of the next failure.
fn next_backoff(core: &mut SubchannelCore, rng: &mut Rng, now: Time) -> Duration {
    core.connect(now, AttemptId(1000), MIN, rng).unwrap();
    core.answer(now, AttemptId(1000), failed());
    let &Attempt::Backoff { retry_at, .. } = core.attempt() else { panic!("{:?}", core.attempt()) };
    retry_at.since(now)
}

#[test]
fn a_connection_that_lived_a_second_resets_the_backoff() {
    for end in [ConnectionEvent::GoAway("bye".into()), ConnectionEvent::Closed("reset".into())] {
        let (mut core, mut rng) = core();
        let now = fail(&mut core, &mut rng, Time::ZERO, 10);
        core.connect(now, AttemptId(10), MIN, &mut rng);
        core.answer(now, AttemptId(10), ready());
        assert!(core.slot().is_connected());
        let now = now + SETTLED;
        assert_eq!(core.answer(now, AttemptId(10), end), Effect::Lost);
        assert!(!core.slot().is_connected());
        assert_eq!(core.state(), ConnectivityState::Idle, "the next attempt may begin at once");
        assert!(next_backoff(&mut core, &mut rng, now) <= Duration::from_millis(1200));
    }
}

#[test]
fn a_connection_that_served_a_call_resets_the_backoff() {
    let (mut core, mut rng) = core();
    let now = fail(&mut core, &mut rng, Time::ZERO, 10);
    core.connect(now, AttemptId(10), MIN, &mut rng);
    core.answer(now, AttemptId(10), ready());
    core.slot().calls().succeeded();
    core.answer(now, AttemptId(10), ConnectionEvent::GoAway("one request per connection".into()));
    assert_eq!(core.state(), ConnectivityState::Idle);
    assert!(next_backoff(&mut core, &mut rng, now) <= Duration::from_millis(1200));
}

#[test]
fn a_connection_that_is_lost_at_once_keeps_the_backoff() {
    let (mut core, mut rng) = core();
    let now = fail(&mut core, &mut rng, Time::ZERO, 3);
    core.connect(now, AttemptId(10), MIN, &mut rng);
    core.answer(now, AttemptId(10), ready());
    core.slot().calls().failed();
    let lost = now + Duration::from_millis(999);
    assert_eq!(core.answer(lost, AttemptId(10), ConnectionEvent::Closed("reset".into())), Effect::Lost);
    let Attempt::Backoff { retry_at, error } = core.attempt() else { panic!("{:?}", core.attempt()) };
    // 1.6^3 seconds, with jitter, from the start of the attempt.
    let delay = retry_at.since(now).as_secs_f64();
    assert!((0.8 * 4.096..=1.2 * 4.096).contains(&delay), "{delay}");
    assert_eq!(error.message, "ipv4:127.0.0.1:443: the connection was lost soon after READY: reset");
    assert!(!core.slot().is_connected());
}

#[test]
fn a_server_that_hangs_up_at_once_gets_one_connection_per_backoff() {
    for end in [ConnectionEvent::GoAway("no".into()), ConnectionEvent::Closed("reset".into())] {
        let (mut core, mut rng) = core();
        let (mut now, mut connections) = (Time::ZERO, 0);
        while now < Time::ZERO + Duration::from_secs(60) {
            core.connect(now, AttemptId(connections), MIN, &mut rng).unwrap();
            core.answer(now, AttemptId(connections), ready());
            now = now + Duration::from_millis(1);
            core.answer(now, AttemptId(connections), end.clone());
            connections += 1;
            if let &Attempt::Backoff { retry_at, .. } = core.attempt() {
                now = retry_at;
                core.end_backoff();
            }
        }
        // The first loss is followed at once; then 1.6, 2.56, ... seconds pass.
        assert!((5..=10).contains(&connections), "{connections}");
    }
}

#[test]
fn a_slow_handshake_counts_into_the_backoff() {
    let (mut core, mut rng) = core();
    let began = fail(&mut core, &mut rng, Time::ZERO, 2);
    core.connect(began, AttemptId(10), MIN, &mut rng);
    let late = began + MIN;
    core.answer(late, AttemptId(10), ready());
    core.answer(late, AttemptId(10), ConnectionEvent::Closed("reset".into()));
    assert_eq!(core.state(), ConnectivityState::Idle);
    // It is not reset.
    assert!(next_backoff(&mut core, &mut rng, late) > Duration::from_secs(2));
}

#[test]
fn a_reset_of_the_backoff_while_ready_counts() {
    let (mut core, mut rng) = core();
    let now = fail(&mut core, &mut rng, Time::ZERO, 5);
    core.connect(now, AttemptId(10), MIN, &mut rng);
    core.answer(now, AttemptId(10), ready());
    assert!(!core.reset_backoff(now));
    core.answer(now, AttemptId(10), ConnectionEvent::Closed("reset".into()));
    assert_eq!(core.state(), ConnectivityState::Idle);
}

#[test]
fn errors_name_the_address() {
    let (mut core, mut rng) = core();
    core.connect(Time::ZERO, AttemptId(1), MIN, &mut rng);
    core.answer(Time::ZERO, AttemptId(1), failed());
    assert_eq!(core.error().unwrap().message, "ipv4:127.0.0.1:443: connection refused");
    assert_eq!(uri("[::1]:80".parse().unwrap()), "ipv6:[::1]:80");
}

#[test]
fn answers_of_other_attempts_change_nothing() {
    let (mut core, mut rng) = core();
    core.connect(Time::ZERO, AttemptId(2), MIN, &mut rng);
    assert_eq!(core.answer(Time::ZERO, AttemptId(1), failed()), Effect::Ignored);
    assert_eq!(core.answer(Time::ZERO, AttemptId(1), ConnectionEvent::Ready(Arc::new(()))), Effect::Unwanted);
    assert_eq!(core.state(), ConnectivityState::Connecting);
    assert!(!core.slot().is_connected());
}
