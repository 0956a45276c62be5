use super::*;

pub(super) struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

fn pool() -> (Pool, SubchannelId, Rng) {
    let mut pool = Pool::new(TreeConfig::default(), Arc::new(Asleep));
    let (subchannel, _) = pool.acquire(key(), HandleId(1), None);
    (pool, subchannel, Rng::new(1))
}

pub(super) fn key() -> PoolKey {
    PoolKey { address: "127.0.0.1:1".parse().unwrap(), security: None, proxy: None }
}

#[test]
fn an_attempt_that_ends_with_its_input_has_no_effect() {
    let (mut pool, subchannel, mut rng) = pool();
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.release(subchannel, HandleId(1));
    pool.finish(Time::ZERO, &mut rng);
    assert_eq!(pool.poll_effect(), None);
    assert_eq!(pool.len(), 0);
}

#[test]
fn an_entry_that_changes_owners_within_an_input_stays() {
    let (mut pool, subchannel, mut rng) = pool();
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.finish(Time::ZERO, &mut rng);
    assert!(matches!(pool.poll_effect(), Some(TreeEffect::Connect { .. })));
    pool.release(subchannel, HandleId(1));
    assert_eq!(pool.acquire(key(), HandleId(2), None).0, subchannel);
    pool.finish(Time::ZERO, &mut rng);
    assert_eq!(pool.poll_effect(), None);
}

#[test]
fn a86_13_connections_are_shared_by_address_and_proxy() {
    let (mut pool, direct, mut rng) = pool();
    let through = |proxy: &str| PoolKey { proxy: Some(Arc::new(proxy.parse().unwrap())), ..key() };
    let (first, _) = pool.acquire(through("127.0.0.1:8"), HandleId(2), None);
    let (second, _) = pool.acquire(through("127.0.0.1:9"), HandleId(3), None);
    assert!(direct != first && first != second && second != direct);
    assert_eq!(pool.acquire(through("127.0.0.1:8"), HandleId(4), None).0, first);
    assert_eq!(pool.acquire(key(), HandleId(5), None).0, direct);
    let proxies: Vec<_> =
        pool.describe().into_iter().map(|node| node.proxy.map(|proxy| proxy.port())).collect();
    assert_eq!(proxies, [None, Some(8), Some(9)]);
    // A closed entry leaves its key.
    pool.release(first, HandleId(2));
    pool.release(first, HandleId(4));
    pool.finish(Time::ZERO, &mut rng);
    assert_ne!(pool.acquire(through("127.0.0.1:8"), HandleId(6), None).0, first);
}

#[test]
fn attempts_begin_in_the_order_of_the_requests() {
    let (mut pool, first, mut rng) = pool();
    let key = PoolKey { address: "127.0.0.1:2".parse().unwrap(), security: None, proxy: None };
    let (second, _) = pool.acquire(key, HandleId(2), None);
    pool.connect(Time::ZERO, second, &mut rng);
    pool.connect(Time::ZERO, first, &mut rng);
    pool.connect(Time::ZERO, second, &mut rng);
    pool.finish(Time::ZERO, &mut rng);
    let started = std::iter::from_fn(|| match pool.poll_effect()? {
        TreeEffect::Connect { subchannel, .. } => Some(subchannel),
        other => panic!("{other:?}"),
    });
    assert_eq!(started.collect::<Vec<_>>(), [second, first]);
}

#[test]
fn a_loss_at_once_is_remembered_without_owners_until_its_backoff_is_over() {
    let (mut pool, subchannel, mut rng) = pool();
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
    pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
    // As pick_first does after a lost connection.
    pool.release(subchannel, HandleId(1));
    pool.finish(Time::ZERO, &mut rng);
    assert_eq!(pool.acquire(key(), HandleId(2), None).0, subchannel);
    assert_eq!(pool.next_deadline(), None);
    pool.release(subchannel, HandleId(2));
    pool.finish(Time::ZERO, &mut rng);
    let until = pool.next_deadline().unwrap();
    assert!((0.8..=1.2).contains(&until.since_epoch().as_secs_f64()), "{until:?}");
    pool.expire(until);
    pool.finish(until, &mut rng);
    assert_eq!((pool.len(), pool.next_deadline()), (0, None));
}

#[test]
fn an_attempt_that_is_given_up_takes_no_failure_back() {
    let (mut pool, subchannel, mut rng) = pool();
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
    pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
    // The first loss is followed by an attempt at once; another address wins.
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.release(subchannel, HandleId(1));
    pool.finish(Time::ZERO, &mut rng);
    assert_eq!(pool.acquire(key(), HandleId(2), None).0, subchannel, "its past is not forgotten");
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.finish(Time::ZERO, &mut rng);
    pool.answer(Time::ZERO, subchannel, AttemptId(2), ConnectionEvent::Ready(Arc::new(())));
    pool.answer(Time::ZERO, subchannel, AttemptId(2), ConnectionEvent::Closed("reset".into()));
    let until = pool.next_deadline().expect("the second loss is followed by a backoff");
    assert!(until > Time::ZERO, "{until:?}");
    // Nor does it stay for ever.
    pool.expire(until);
    pool.connect(until, subchannel, &mut rng);
    pool.release(subchannel, HandleId(2));
    pool.finish(until, &mut rng);
    let forgotten = pool.next_deadline().expect("it is remembered for a while");
    pool.expire(forgotten);
    pool.finish(forgotten, &mut rng);
    assert_eq!((pool.len(), pool.next_deadline()), (0, None));
}

/// The keepalive interval in seconds of the attempt after so many connections that end with this event.
fn keepalive_after(seconds: u64, times: u64, end: &ConnectionEvent) -> u64 {
    let keepalive_interval = Some(Duration::from_secs(seconds));
    let mut pool = Pool::new(TreeConfig { keepalive_interval, ..TreeConfig::default() }, Arc::new(Asleep));
    let (subchannel, _) = pool.acquire(key(), HandleId(1), None);
    let mut rng = Rng::new(1);
    // Each connection lasts long enough to be followed by the next one at once.
    let mut now = Time::ZERO;
    for attempt in (0..times).map(AttemptId) {
        pool.connect(now, subchannel, &mut rng);
        pool.finish(now, &mut rng);
        pool.answer(now, subchannel, attempt, ConnectionEvent::Ready(Arc::new(())));
        now = now + Duration::from_secs(60);
        pool.answer(now, subchannel, attempt, end.clone());
        // A late repetition is ignored.
        pool.answer(now, subchannel, attempt, end.clone());
    }
    while pool.poll_effect().is_some() {}
    pool.connect(now, subchannel, &mut rng);
    pool.finish(now, &mut rng);
    match pool.poll_effect() {
        Some(TreeEffect::Connect { keepalive_interval: Some(interval), .. }) => interval.as_secs(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a8_too_many_pings_doubles_the_keepalive_interval() {
    assert_eq!(keepalive_after(10, 1, &ConnectionEvent::TooManyPings("calm".into())), 20);
    assert_eq!(keepalive_after(10, 1, &ConnectionEvent::GoAway("bye".into())), 10);
    assert_eq!(keepalive_after(10, 1, &ConnectionEvent::Closed("reset".into())), 10);
}

#[test]
fn a8_too_many_pings_does_not_end_keepalive() {
    let after =
        |seconds, times| keepalive_after(seconds, times, &ConnectionEvent::TooManyPings("calm".into()));
    assert_eq!(after(10, 5), 320);
    assert_eq!(after(10, 6), 600);
    assert_eq!(after(10, 50), 600);
    assert_eq!(after(3600, 2), 3600, "the configured interval is not shortened");
}

#[test]
fn loss_of_a_lingering_connection_removes_it() {
    let (mut pool, subchannel, mut rng) = pool();
    pool.connect(Time::ZERO, subchannel, &mut rng);
    pool.answer(Time::ZERO, subchannel, AttemptId(0), ConnectionEvent::Ready(Arc::new(())));
    pool.release(subchannel, HandleId(1));
    pool.finish(Time::ZERO, &mut rng);
    assert!(pool.next_deadline().is_some());
    let later = Time::ZERO + Duration::from_secs(1);
    pool.answer(later, subchannel, AttemptId(0), ConnectionEvent::Closed("reset".into()));
    pool.finish(later, &mut rng);
    assert_eq!((pool.len(), pool.next_deadline()), (0, None));
    assert!(pool.take_lost());
}
