//! Tests of the schedule of DNS queries.

use std::time::Duration;

use proxyless_sans_io::Time;

use super::{DnsAnswer, DnsConfig, DnsOutput, DnsRefresh, DnsScheduler, QueryId};
use crate::dependency_manager::DnsName;

fn name(host: &str) -> DnsName {
    DnsName { host: host.into(), port: 80 }
}

fn at(millis: u64) -> Time {
    Time::from_epoch(Duration::from_millis(millis))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A scheduler, a clock, and all that came out.
struct Bed {
    scheduler: DnsScheduler,
    now: Time,
    /// The newest query of each host that waits for an answer.
    open: Vec<(QueryId, String)>,
    /// When each query began.
    queries: Vec<Time>,
    cancelled: Vec<QueryId>,
    results: Vec<Result<usize, String>>,
}

impl Bed {
    fn new(config: DnsConfig) -> Self {
        Self {
            scheduler: DnsScheduler::new(config, 7),
            now: Time::ZERO,
            open: Vec::new(),
            queries: Vec::new(),
            cancelled: Vec::new(),
            results: Vec::new(),
        }
    }

    /// With one name, whose first query is out.
    fn started(config: DnsConfig) -> Self {
        let mut bed = Self::new(config);
        bed.scheduler.start(Time::ZERO, name("a"));
        bed.pump();
        bed
    }

    /// With one name that is resolved.
    fn resolved(config: DnsConfig) -> Self {
        let mut bed = Self::started(config);
        bed.succeed(None);
        bed
    }

    fn pump(&mut self) {
        while let Some(output) = self.scheduler.poll() {
            match output {
                DnsOutput::Query { query, name } => {
                    self.queries.push(self.now);
                    self.open.push((query, name.host.to_string()));
                }
                DnsOutput::Cancel { query } => {
                    self.open.retain(|(open, _)| *open != query);
                    self.cancelled.push(query);
                }
                DnsOutput::Result { result, .. } => self.results.push(result.map(|found| found.len())),
            }
        }
    }

    /// Lets time pass, deadline by deadline.
    fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(deadline) = self.scheduler.next_deadline().filter(|&deadline| deadline <= end) {
            assert!(deadline >= self.now, "a deadline that was missed");
            self.now = deadline;
            self.scheduler.tick(deadline);
            self.pump();
            assert!(
                self.scheduler.next_deadline() != Some(deadline),
                "a tick that did not serve its deadline"
            );
        }
        self.now = end;
    }

    fn answer(&mut self, result: Result<DnsAnswer, String>) {
        let (query, _) = self.open.pop().expect("a query");
        self.scheduler.answer(self.now, query, result);
        self.pump();
    }

    fn succeed(&mut self, ttl: Option<Duration>) {
        let addresses = vec!["127.0.0.1:80".parse().expect("an address")];
        self.answer(Ok(DnsAnswer { addresses, ttl }));
    }

    fn fail(&mut self) {
        self.answer(Err("SERVFAIL".into()));
    }

    fn request(&mut self) {
        self.scheduler.request(self.now);
        self.pump();
    }
}

#[test]
fn a37_29_the_first_query_begins_at_once() {
    let mut bed = Bed::started(DnsConfig::default());
    assert_eq!((bed.queries.len(), bed.open.len()), (1, 1));
    bed.succeed(None);
    assert_eq!(bed.results, [Ok(1)]);
    assert_eq!(bed.scheduler.next_deadline(), None, "nothing more to do until someone asks");
}

#[test]
fn a37_29_literals_are_answered_without_a_query() {
    let mut bed = Bed::new(DnsConfig { refresh: DnsRefresh::Every(secs(1)), ..DnsConfig::default() });
    for host in ["10.1.2.3", "::1", "localhost"] {
        bed.scheduler.start(Time::ZERO, name(host));
    }
    bed.pump();
    assert_eq!(bed.results, [Ok(1), Ok(1), Ok(2)]);
    bed.request();
    bed.scheduler.reset_backoff(bed.now);
    bed.advance(secs(1000));
    assert!(bed.queries.is_empty() && bed.results.len() == 3);
}

#[test]
fn a37_34_requests_are_served_once_per_interval_and_never_forgotten() {
    let mut bed = Bed::resolved(DnsConfig::default());
    bed.advance(secs(10));
    for _ in 0..5 {
        bed.request();
    }
    assert_eq!(bed.queries.len(), 1, "too early");
    bed.advance(secs(20));
    assert_eq!(bed.queries, [at(0), at(30_000)]);
    bed.succeed(None);
    bed.advance(secs(80));
    // The query began long ago: the next request is served at once.
    bed.request();
    assert_eq!(bed.queries, [at(0), at(30_000), at(110_000)]);
}

#[test]
fn a37_34_a_query_under_way_serves_requests() {
    let mut bed = Bed::started(DnsConfig::default());
    bed.request();
    bed.succeed(None);
    bed.advance(secs(1000));
    assert_eq!(bed.queries.len(), 1);
}

#[test]
fn a37_34_the_interval_can_be_set() {
    let config = DnsConfig { min_resolution_interval: Duration::from_millis(200), ..DnsConfig::default() };
    let mut bed = Bed::resolved(config);
    bed.request();
    bed.advance(secs(1));
    assert_eq!(bed.queries, [at(0), at(200)]);
}

#[test]
fn a37_37_failures_are_retried_with_growing_delays_until_one_succeeds() {
    let mut bed = Bed::started(DnsConfig::default());
    let mut base = 1.0f64;
    for round in 1..=15 {
        bed.fail();
        let failed_at = bed.now;
        // Requests do not shorten the wait.
        bed.request();
        assert_eq!(bed.queries.len(), round);
        while bed.open.is_empty() {
            let next = bed.scheduler.next_deadline().expect("a retry");
            bed.advance(next.since(bed.now));
        }
        let delay = bed.now.since(failed_at).as_secs_f64();
        assert!((base * 0.8..=base * 1.2).contains(&delay), "{delay} around {base}");
        base = (base * 1.6).min(120.0);
    }
    assert_eq!(base, 120.0);
    bed.succeed(None);
    bed.advance(secs(1000));
    assert_eq!(bed.queries.len(), 16, "success ends the retries");
    bed.request();
    bed.fail();
    bed.advance(Duration::from_millis(1_200));
    assert_eq!(bed.queries.len(), 18, "the backoff has restarted");
}

#[test]
fn a37_39_a_failed_refresh_is_retried_too() {
    let mut bed = Bed::resolved(DnsConfig::default());
    bed.advance(secs(40));
    bed.request();
    bed.fail();
    bed.advance(Duration::from_millis(1_200));
    assert_eq!(bed.queries.len(), 3, "without another request");
    assert_eq!(bed.results, [Ok(1), Err("SERVFAIL".into())]);
}

#[test]
fn an_answer_without_addresses_is_a_failure() {
    let mut bed = Bed::started(DnsConfig::default());
    bed.answer(Ok(DnsAnswer { addresses: Vec::new(), ttl: Some(secs(5)) }));
    assert_eq!(bed.results, [Err("no addresses found".into())]);
    bed.advance(Duration::from_millis(1_200));
    assert_eq!(bed.queries.len(), 2);
}

#[test]
fn a_query_without_an_answer_fails_at_its_deadline() {
    let mut bed = Bed::started(DnsConfig::default());
    bed.advance(Duration::from_millis(19_999));
    assert!(bed.results.is_empty());
    bed.advance(Duration::from_millis(1));
    assert_eq!(bed.results, [Err("no answer within 20s".into())]);
    assert_eq!(bed.cancelled, [QueryId(1)]);
    // It comes late: nobody is interested.
    let late = DnsAnswer { addresses: vec!["127.0.0.1:80".parse().expect("an address")], ttl: None };
    bed.scheduler.answer(bed.now, QueryId(1), Ok(late));
    bed.pump();
    assert_eq!(bed.results.len(), 1);
    bed.advance(Duration::from_millis(1_200));
    assert_eq!(bed.queries.len(), 2);
}

#[test]
fn reset_backoff_queries_now() {
    let mut bed = Bed::started(DnsConfig::default());
    for _ in 0..5 {
        bed.fail();
        bed.scheduler.reset_backoff(bed.now);
        bed.pump();
    }
    assert_eq!(bed.queries, [Time::ZERO; 6]);
    bed.succeed(None);
    bed.scheduler.reset_backoff(bed.now);
    bed.pump();
    assert_eq!(bed.queries.len(), 6, "nothing waited");
    bed.request();
    bed.scheduler.reset_backoff(bed.now);
    bed.pump();
    assert_eq!(bed.queries.len(), 7, "a request waited");
}

#[test]
fn a_stopped_name_is_forgotten() {
    let mut bed = Bed::started(DnsConfig::default());
    bed.scheduler.stop(&name("a"));
    bed.pump();
    assert_eq!(bed.cancelled, [QueryId(1)]);
    bed.scheduler.answer(bed.now, QueryId(1), Err("late".into()));
    bed.request();
    assert_eq!((bed.scheduler.next_deadline(), bed.results.len(), bed.queries.len()), (None, 0, 1));
    // Started again, the answer of its old query is not mistaken for the new one's.
    bed.scheduler.start(bed.now, name("a"));
    bed.pump();
    bed.scheduler.answer(bed.now, QueryId(1), Err("late".into()));
    bed.pump();
    assert!(bed.results.is_empty() && bed.open == [(QueryId(2), "a".to_owned())]);
    bed.scheduler.stop(&name("a"));
    bed.pump();
    assert_eq!((bed.cancelled, bed.scheduler.next_deadline()), (vec![QueryId(1), QueryId(2)], None));
}

#[test]
fn names_have_clocks_of_their_own() {
    let mut bed = Bed::resolved(DnsConfig::default());
    bed.advance(secs(20));
    bed.scheduler.start(bed.now, name("b"));
    bed.pump();
    bed.succeed(None);
    bed.request();
    bed.advance(secs(10));
    assert_eq!(bed.open.iter().map(|(_, host)| host.as_str()).collect::<Vec<_>>(), ["a"]);
    bed.advance(secs(20));
    // By then the first has timed out once and was tried again.
    assert!(bed.open.iter().any(|(_, host)| host == "b"), "{:?}", bed.open);
}

#[test]
fn ttl_refresh_waits_for_the_records_or_the_least_interval() {
    let config = DnsConfig { refresh: DnsRefresh::Ttl { min: secs(10) }, ..DnsConfig::default() };
    let mut bed = Bed::started(config);
    bed.succeed(Some(secs(3)));
    bed.advance(secs(10));
    assert_eq!(bed.queries, [at(0), at(10_000)], "10 s is the least");
    bed.succeed(Some(secs(60)));
    bed.advance(secs(60));
    assert_eq!(bed.queries, [at(0), at(10_000), at(70_000)]);
    bed.succeed(None);
    bed.advance(secs(10_000));
    assert_eq!(bed.queries.len(), 3, "no time to live, no refresh");
}

#[test]
fn periodic_refresh_goes_on_and_serves_requests() {
    let mut bed = Bed::resolved(DnsConfig { refresh: DnsRefresh::Every(secs(20)), ..DnsConfig::default() });
    bed.advance(secs(5));
    bed.request();
    bed.advance(secs(15));
    assert_eq!(bed.queries, [at(0), at(20_000)], "sooner than the request would be served");
    bed.succeed(None);
    bed.advance(secs(20));
    assert_eq!(bed.queries, [at(0), at(20_000), at(40_000)], "no query for the request that was served");
}

#[test]
fn no_refresh_is_a_busy_loop() {
    for refresh in [DnsRefresh::Every(Duration::ZERO), DnsRefresh::Ttl { min: Duration::ZERO }] {
        let mut bed = Bed::started(DnsConfig { refresh, ..DnsConfig::default() });
        bed.succeed(Some(Duration::ZERO));
        bed.advance(Duration::from_millis(999));
        assert_eq!(bed.queries.len(), 1, "{refresh:?}");
    }
}
