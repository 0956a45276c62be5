//! Tests of the pool with several connections per subchannel (gRFC A105).

use super::tests::{Asleep, key};
use super::*;

/// A pool with one subchannel of one connection, and the limit of its owner.
struct Rig {
    pool: Pool,
    subchannel: SubchannelId,
    limit: ConnectionLimit,
    demand: Option<Arc<StreamDemand>>,
    /// The attempts that the pool has started, and not cancelled, and the connections that it has not closed.
    open: Vec<AttemptId>,
    rng: Rng,
    now: Time,
}

impl Rig {
    fn new(limit: Option<u32>) -> Self {
        Self::capped(limit, 10)
    }

    fn capped(limit: Option<u32>, connections_per_subchannel_cap: u32) -> Self {
        let config = TreeConfig { connections_per_subchannel_cap, ..TreeConfig::default() };
        let mut pool = Pool::new(config, Arc::new(Asleep));
        let connection_limit = ConnectionLimit::default();
        connection_limit.set(limit);
        let (subchannel, _) = pool.acquire(key(), HandleId(1), Some(connection_limit.clone()));
        let (rng, now) = (Rng::new(1), Time::ZERO);
        let mut rig =
            Self { pool, subchannel, limit: connection_limit, demand: None, open: Vec::new(), rng, now };
        rig.pool.connect(rig.now, subchannel, &mut rig.rng);
        rig.finish();
        rig.ready();
        rig
    }

    /// Ends the input; returns the states that owners were told.
    fn finish(&mut self) -> Vec<ConnectivityState> {
        let events: Vec<_> = std::iter::from_fn(|| self.pool.poll_event()).map(|event| event.state).collect();
        self.pool.finish(self.now, &mut self.rng);
        while let Some(effect) = self.pool.poll_effect() {
            match effect {
                TreeEffect::Connect { attempt, demand, .. } => {
                    self.open.push(attempt);
                    self.demand = demand.or(self.demand.take());
                }
                TreeEffect::ReportDemand { demand, .. } => self.demand = Some(demand),
                TreeEffect::CancelConnect { attempt, .. } | TreeEffect::CloseGracefully { attempt, .. } => {
                    self.open.retain(|open| *open != attempt);
                }
                other => panic!("{other:?}"),
            }
        }
        events
    }

    fn answer(&mut self, attempt: AttemptId, event: ConnectionEvent) -> Vec<ConnectivityState> {
        if !matches!(event, ConnectionEvent::Ready(_)) {
            self.open.retain(|open| *open != attempt);
        }
        self.pool.answer(self.now, self.subchannel, attempt, event);
        self.finish()
    }

    /// The latest attempt succeeds.
    fn ready(&mut self) -> Vec<ConnectivityState> {
        let latest = *self.open.last().unwrap();
        self.answer(latest, ConnectionEvent::Ready(Arc::new(())))
    }

    fn lose(&mut self, at: usize) -> Vec<ConnectivityState> {
        let attempt = self.open[at];
        self.answer(attempt, ConnectionEvent::Closed("reset".into()))
    }

    /// So many calls wait.
    fn queued(&mut self, count: usize) -> usize {
        if let Some(demand) = &self.demand {
            demand.set_queued(count);
        }
        self.pool.on_demand();
        self.finish();
        self.open.len()
    }

    fn set_limit(&mut self, limit: u32) -> usize {
        self.limit.set(Some(limit));
        self.pool.limits_changed();
        self.finish();
        self.open.len()
    }

    fn settle(&mut self) {
        self.now = self.now + Duration::from_secs(60);
    }
}

#[test]
fn a105_03_without_a_limit_there_is_one_connection() {
    let mut rig = Rig::new(None);
    assert!(rig.demand.is_none(), "the data path need not report");
    assert_eq!(rig.queued(5), 1);
    assert_eq!(rig.pool.describe()[0].max_connections, 1);
}

#[test]
fn a105_04_the_limit_is_capped() {
    for (limit, cap, expected) in [(3, 10, 3), (100, 10, 10), (100, 2, 2), (100, 0, 1)] {
        let mut rig = Rig::capped(Some(limit), cap);
        let mut most = 0;
        for _ in 0..20 {
            most = rig.queued(1000);
            rig.ready();
        }
        assert_eq!((most, rig.pool.describe()[0].max_connections), (expected, expected as u32));
    }
}

#[test]
fn a105_05_the_largest_limit_of_all_owners_applies() {
    let mut rig = Rig::new(Some(2));
    let other = ConnectionLimit::default();
    other.set(Some(3));
    assert_eq!(rig.pool.acquire(key(), HandleId(2), Some(other)).0, rig.subchannel, "A105-02");
    rig.finish();
    assert_eq!(rig.queued(9), 2);
    rig.ready();
    assert_eq!(rig.open.len(), 3);
    rig.ready();
    // The owner of the larger limit leaves: no connection is closed, and none follows a lost one.
    rig.pool.release(rig.subchannel, HandleId(2));
    rig.finish();
    assert_eq!(rig.open.len(), 3);
    rig.settle();
    rig.lose(2);
    assert_eq!((rig.open.len(), rig.pool.describe()[0].max_connections), (2, 2));
}

#[test]
fn a105_07_a_connection_is_attempted_while_calls_wait() {
    let mut rig = Rig::new(Some(4));
    assert_eq!(rig.queued(0), 1);
    assert_eq!(rig.queued(3), 2);
    assert_eq!(rig.queued(4), 2, "one attempt at a time");
    // The new connection does not have enough streams for all.
    assert_eq!(rig.ready(), [], "owners see no change");
    assert_eq!(rig.open.len(), 3);
    // This one has.
    rig.demand.as_ref().unwrap().set_queued(0);
    rig.ready();
    assert_eq!(rig.open.len(), 3);
    // A lost connection is replaced only if calls wait.
    rig.settle();
    rig.lose(0);
    assert_eq!(rig.open.len(), 2);
    rig.demand.as_ref().unwrap().set_queued(1);
    rig.lose(0);
    assert_eq!(rig.open.len(), 2);
}

#[test]
fn a105_08_a_raised_limit_counts_at_once_and_a_lowered_one_closes_nothing() {
    let mut rig = Rig::new(None);
    assert_eq!(rig.set_limit(2), 1);
    // The calls that wait already are reported when the driver begins to.
    assert_eq!(rig.queued(5), 2);
    rig.ready();
    assert_eq!(rig.open.len(), 2);
    assert_eq!(rig.set_limit(3), 3);
    rig.ready();
    assert_eq!(rig.set_limit(1), 3);
    rig.settle();
    rig.lose(0);
    rig.lose(0);
    assert_eq!((rig.open.len(), rig.set_limit(2)), (1, 2));
}

#[test]
fn a105_08_a_limit_that_is_raised_during_the_first_attempt_counts() {
    let mut rig = Rig::new(None);
    rig.settle();
    rig.lose(0);
    rig.pool.connect(rig.now, rig.subchannel, &mut rig.rng);
    rig.finish();
    assert_eq!((rig.set_limit(2), rig.demand.is_some()), (1, true), "the driver is told while it connects");
    rig.ready();
    assert_eq!(rig.queued(1), 2);
}

#[test]
fn a105_11_calls_that_wait_are_looked_at_when_the_backoff_ends() {
    let mut rig = Rig::new(Some(2));
    rig.queued(1);
    let attempt = rig.open[1];
    assert_eq!(rig.answer(attempt, ConnectionEvent::Failed("refused".into())), []);
    assert_eq!(rig.queued(2), 1, "in backoff");
    let until = rig.pool.next_deadline().unwrap();
    rig.now = until;
    rig.pool.expire(until);
    assert_eq!((rig.finish(), rig.open.len()), (vec![], 2));
}

#[test]
fn a105_15_a105_16_owners_see_the_last_loss() {
    let mut rig = Rig::new(Some(2));
    rig.settle();
    rig.queued(1);
    assert_eq!(rig.lose(0), [ConnectivityState::Connecting]);
    assert_eq!(rig.ready(), [ConnectivityState::Ready]);
    rig.settle();
    rig.queued(1);
    let attempt = rig.open[1];
    rig.answer(attempt, ConnectionEvent::Failed("refused".into()));
    assert_eq!(rig.lose(0), [ConnectivityState::TransientFailure]);
    assert!(rig.pool.take_lost());
}

#[test]
fn every_loss_makes_queued_calls_pick_again() {
    let mut rig = Rig::new(Some(2));
    rig.queued(1);
    rig.ready();
    rig.pool.take_lost();
    assert_eq!(rig.lose(0), []);
    assert!(rig.pool.take_lost(), "a call may have seen the lost connection before the other one was there");
}

#[test]
fn the_last_owner_takes_the_attempt_along_and_leaves_the_connections_for_a_while() {
    let mut rig = Rig::new(Some(3));
    rig.queued(1);
    rig.ready();
    assert_eq!(rig.open.len(), 3);
    rig.pool.release(rig.subchannel, HandleId(1));
    rig.finish();
    assert_eq!(rig.open.len(), 2, "the attempt is cancelled");
    // The loss of one of two does not keep the other for ever.
    rig.lose(0);
    let until = rig.pool.next_deadline().unwrap();
    rig.now = until;
    rig.pool.expire(until);
    rig.finish();
    assert_eq!((rig.open.len(), rig.pool.len(), rig.pool.next_deadline()), (0, 0, None));
}

#[test]
fn a_new_owner_of_a_lingering_subchannel_serves_the_calls_that_wait() {
    let mut rig = Rig::new(Some(3));
    rig.queued(1);
    rig.pool.release(rig.subchannel, HandleId(1));
    rig.finish();
    assert_eq!(rig.open.len(), 1);
    let limit = rig.limit.clone();
    rig.pool.acquire(key(), HandleId(2), Some(limit));
    rig.finish();
    assert_eq!(rig.open.len(), 2);
}

#[test]
fn a51_15_load_reports_move_to_the_next_connection() {
    let mut rig = Rig::new(Some(2));
    rig.queued(1);
    rig.ready();
    let (first, second) = (rig.open[0], rig.open[1]);
    rig.pool.watch_load(rig.subchannel, HandleId(1), Some(Duration::from_secs(1)));
    rig.pool.finish(rig.now, &mut rig.rng);
    let opened = rig.pool.poll_effect();
    assert!(
        matches!(opened, Some(TreeEffect::OpenLoadStream { attempt, .. }) if attempt == first),
        "{opened:?}"
    );
    rig.settle();
    rig.pool.answer(rig.now, rig.subchannel, first, ConnectionEvent::Closed("reset".into()));
    rig.pool.finish(rig.now, &mut rig.rng);
    let effects: Vec<_> = std::iter::from_fn(|| rig.pool.poll_effect()).collect();
    let is_closed =
        |effect: &_| matches!(effect, TreeEffect::CloseLoadStream { attempt, .. } if *attempt == first);
    let is_open =
        |effect: &_| matches!(effect, TreeEffect::OpenLoadStream { attempt, .. } if *attempt == second);
    assert!(effects.iter().any(is_closed) && effects.iter().any(is_open), "{effects:?}");
}
