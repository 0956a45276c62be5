//! Out-of-band load reports (gRFC A51): one stream per READY subchannel that a policy wants reports of.
//!
//! Inputs: the requests of owners, the connections of subchannels, the driver's events, deadlines. Outputs: streams to
//! open and close, and the owners of a report. Requests that cancel out within an input have no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proxyless_sans_io::{BackoffConfig, Rng, Time};

use crate::api::{Code, HandleId};
use crate::tree::{AttemptId, LoadStreamId, SubchannelId, TreeEffect};

/// A stream that ends sooner is followed by another after a backoff, even if it delivered a report: a server that ends
/// every stream after one report would otherwise be asked again at once, for ever.
const SETTLED: Duration = Duration::from_secs(1);

/// The streams of a pool.
#[derive(Default)]
pub(super) struct LoadStreams {
    streams: BTreeMap<SubchannelId, LoadStream>,
    deadlines: BTreeSet<(Time, SubchannelId)>,
    /// The streams to look at, at the end of the input.
    dirty: BTreeSet<SubchannelId>,
    next: u64,
}

#[derive(Default)]
struct LoadStream {
    /// The intervals that the owners of the subchannel want.
    requests: BTreeMap<HandleId, Duration>,
    connection: Option<AttemptId>,
    phase: Phase,
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    Open {
        stream: LoadStreamId,
        attempt: AttemptId,
        interval: Duration,
        since: Time,
        answered: bool,
    },
    Backoff {
        until: Time,
    },
    /// A51-13: the server does not have the service. Not tried again on this connection.
    Unimplemented,
}

/// The consequence of a stream's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was not the current stream.
    Ignored,
    /// Another one follows.
    Retried,
    /// The server does not have the service.
    Unimplemented,
}

impl LoadStreams {
    /// An owner wants reports of its subchannel at this interval, or no more. `connection` is that of the subchannel.
    pub(super) fn request(
        &mut self,
        subchannel: SubchannelId,
        owner: HandleId,
        interval: Option<Duration>,
        connection: Option<AttemptId>,
    ) {
        match interval {
            Some(interval) => {
                let stream = self.streams.entry(subchannel).or_default();
                stream.requests.insert(owner, interval);
                stream.connection = connection;
            }
            None => {
                let Some(stream) = self.streams.get_mut(&subchannel) else { return };
                stream.requests.remove(&owner);
            }
        }
        self.dirty.insert(subchannel);
    }

    /// The connection of a subchannel was established or lost.
    pub(super) fn connection(&mut self, subchannel: SubchannelId, connection: Option<AttemptId>) {
        if let Some(stream) = self.streams.get_mut(&subchannel)
            && stream.connection != connection
        {
            stream.connection = connection;
            if !matches!(stream.phase, Phase::Open { .. }) {
                // A new connection is asked at once, even if the last one had no service.
                (stream.phase, stream.failures) = (Phase::Closed, 0);
            }
            self.dirty.insert(subchannel);
        }
    }

    /// The owners that wait for a report of this stream.
    pub(super) fn on_report(&mut self, subchannel: SubchannelId, id: LoadStreamId) -> Vec<HandleId> {
        let Some(stream) = self.streams.get_mut(&subchannel) else { return Vec::new() };
        match &mut stream.phase {
            Phase::Open { stream: open, answered, .. } if *open == id => {
                *answered = true;
                stream.requests.keys().copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// A stream ended with this status.
    pub(super) fn on_end(
        &mut self,
        now: Time,
        subchannel: SubchannelId,
        id: LoadStreamId,
        code: Code,
        backoff: &BackoffConfig,
        rng: &mut Rng,
    ) -> Ended {
        let Some(stream) = self.streams.get_mut(&subchannel) else { return Ended::Ignored };
        let (since, answered) = match stream.phase {
            Phase::Open { stream: open, since, answered, .. } if open == id => (since, answered),
            _ => return Ended::Ignored,
        };
        if code == Code::Unimplemented {
            stream.phase = Phase::Unimplemented;
            return Ended::Unimplemented;
        }
        // A51-14: with exponential backoff, which a report resets: the next stream follows at once.
        if answered {
            stream.failures = 0;
        }
        if answered && now.since(since) >= SETTLED {
            stream.phase = Phase::Closed;
            self.dirty.insert(subchannel);
        } else {
            let until = now + backoff.delay_after(stream.failures, rng);
            stream.failures = stream.failures.saturating_add(1);
            stream.phase = Phase::Backoff { until };
            self.deadlines.insert((until, subchannel));
        }
        Ended::Retried
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Ends the backoffs that are over.
    pub(super) fn expire(&mut self, now: Time) {
        while let Some(&(at, subchannel)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, subchannel));
            if let Some(stream) = self.streams.get_mut(&subchannel)
                && stream.phase == (Phase::Backoff { until: at })
            {
                stream.phase = Phase::Closed;
                self.dirty.insert(subchannel);
            }
        }
    }

    /// Closes all streams and forgets all requests.
    pub(super) fn close_all(&mut self, effects: &mut impl Extend<TreeEffect>) {
        for (&subchannel, stream) in &self.streams {
            if let Phase::Open { stream, attempt, .. } = stream.phase {
                effects.extend([TreeEffect::CloseLoadStream { subchannel, attempt, stream }]);
            }
        }
        (self.streams, self.deadlines, self.dirty) = Default::default();
    }

    /// Ends the input: opens and closes streams.
    pub(super) fn finish(&mut self, now: Time, effects: &mut impl Extend<TreeEffect>) {
        for subchannel in std::mem::take(&mut self.dirty) {
            let Some(stream) = self.streams.get_mut(&subchannel) else { continue };
            // A51-11: the shortest interval that an owner wants.
            let interval = stream.requests.values().min().copied();
            if let Phase::Open { stream: id, attempt, interval: open, .. } = stream.phase
                && (stream.connection != Some(attempt) || interval != Some(open))
            {
                // A51-12: a new interval needs a new call; A51-15: a lost connection or a GOAWAY cancels it.
                effects.extend([TreeEffect::CloseLoadStream { subchannel, attempt, stream: id }]);
                stream.phase = Phase::Closed;
            }
            let Some(attempt) = stream.connection else {
                stream.failures = 0;
                if interval.is_none() {
                    self.streams.remove(&subchannel);
                }
                continue;
            };
            let Some(interval) = interval else {
                // A51-13, A51-14: an owner that comes back does not ask the connection sooner than one that stays.
                if stream.phase == Phase::Closed {
                    self.streams.remove(&subchannel);
                }
                continue;
            };
            if stream.phase == Phase::Closed {
                let id = LoadStreamId(self.next);
                self.next += 1;
                stream.phase = Phase::Open { stream: id, attempt, interval, since: now, answered: false };
                effects.extend([TreeEffect::OpenLoadStream { subchannel, attempt, stream: id, interval }]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SubchannelId = SubchannelId(1);
    const OWNER: HandleId = HandleId(7);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn finish(streams: &mut LoadStreams, now: u64) -> Vec<TreeEffect> {
        let mut effects = Vec::new();
        streams.finish(at(now), &mut effects);
        effects
    }

    fn request(streams: &mut LoadStreams, owner: u64, interval: Option<u64>) {
        let interval = interval.map(Duration::from_secs);
        streams.request(ONE, HandleId(owner), interval, Some(AttemptId(1)));
    }

    #[track_caller]
    fn opened(effects: &[TreeEffect]) -> (LoadStreamId, u64) {
        match effects.last() {
            Some(TreeEffect::OpenLoadStream { stream, interval, .. }) => (*stream, interval.as_secs()),
            other => panic!("not opened: {other:?}"),
        }
    }

    fn end(streams: &mut LoadStreams, now: u64, stream: LoadStreamId, code: Code) -> Ended {
        streams.on_end(at(now), ONE, stream, code, &BackoffConfig::default(), &mut Rng::new(1))
    }

    #[test]
    fn a51_11_a51_12_the_shortest_interval_is_requested_by_a_new_call() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 1, Some(10));
        request(&mut streams, 2, Some(5));
        let (first, interval) = opened(&finish(&mut streams, 0));
        assert_eq!(interval, 5);
        assert_eq!(streams.on_report(ONE, first), [HandleId(1), HandleId(2)]);
        request(&mut streams, 1, Some(20));
        assert_eq!(finish(&mut streams, 1), [], "the shortest is the same");
        request(&mut streams, 2, None);
        let effects = finish(&mut streams, 2);
        assert!(matches!(effects[0], TreeEffect::CloseLoadStream { stream, .. } if stream == first));
        assert_eq!(opened(&effects).1, 20);
        assert!(streams.on_report(ONE, first).is_empty(), "reports of the old call are late");
        request(&mut streams, 1, None);
        assert_eq!(finish(&mut streams, 3).len(), 1);
        assert!(streams.streams.is_empty());
    }

    #[test]
    fn a51_13_an_unimplemented_service_is_not_asked_again_on_the_connection() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (stream, _) = opened(&finish(&mut streams, 0));
        assert_eq!(end(&mut streams, 1, stream, Code::Unimplemented), Ended::Unimplemented);
        request(&mut streams, 7, Some(5));
        assert_eq!((finish(&mut streams, 2), streams.next_deadline()), (vec![], None));
        streams.connection(ONE, None);
        finish(&mut streams, 3);
        streams.connection(ONE, Some(AttemptId(2)));
        opened(&finish(&mut streams, 4));
    }

    #[test]
    fn a51_13_an_owner_that_comes_back_does_not_ask_an_unimplemented_service_again() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (stream, _) = opened(&finish(&mut streams, 0));
        end(&mut streams, 1, stream, Code::Unimplemented);
        request(&mut streams, 7, None);
        assert_eq!(finish(&mut streams, 2), []);
        request(&mut streams, 8, Some(10));
        assert_eq!((finish(&mut streams, 3), streams.next_deadline()), (vec![], None));
        // Nothing is kept of a lost connection.
        request(&mut streams, 8, None);
        finish(&mut streams, 4);
        streams.connection(ONE, None);
        finish(&mut streams, 5);
        assert!(streams.streams.is_empty());
    }

    #[test]
    fn a51_14_an_owner_that_comes_back_waits_for_the_end_of_the_backoff() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (stream, _) = opened(&finish(&mut streams, 0));
        end(&mut streams, 0, stream, Code::Unavailable);
        request(&mut streams, 7, None);
        finish(&mut streams, 0);
        request(&mut streams, 7, Some(10));
        assert_eq!(finish(&mut streams, 0), []);
        request(&mut streams, 7, None);
        finish(&mut streams, 0);
        streams.expire(streams.next_deadline().expect("a backoff"));
        finish(&mut streams, 9);
        assert!(streams.streams.is_empty() && streams.next_deadline().is_none());
    }

    #[test]
    fn a51_14_failed_calls_are_repeated_with_a_backoff_that_a_report_resets() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (mut stream, _) = opened(&finish(&mut streams, 0));
        let mut waits = Vec::new();
        let mut now = at(0);
        for _ in 0..3 {
            streams.on_end(now, ONE, stream, Code::Unavailable, &BackoffConfig::default(), &mut Rng::new(1));
            let until = streams.next_deadline().expect("a backoff");
            waits.push(until.since(now));
            streams.expire(until);
            now = until;
            let mut effects = Vec::new();
            streams.finish(now, &mut effects);
            stream = opened(&effects).0;
        }
        assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
        assert_eq!(streams.on_report(ONE, stream), [OWNER]);
        let later = now + SETTLED;
        let ended = streams.on_end(later, ONE, stream, Code::Ok, &BackoffConfig::default(), &mut Rng::new(1));
        assert_eq!(ended, Ended::Retried);
        let mut effects = Vec::new();
        streams.finish(later, &mut effects);
        opened(&effects);
        assert_eq!(streams.next_deadline(), None);
    }

    #[test]
    fn a51_14_a_server_that_ends_each_call_after_a_report_is_not_flooded() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (stream, _) = opened(&finish(&mut streams, 0));
        streams.on_report(ONE, stream);
        assert_eq!(end(&mut streams, 0, stream, Code::Ok), Ended::Retried);
        assert_eq!(finish(&mut streams, 0), []);
        assert!(streams.next_deadline().is_some());
    }

    #[test]
    fn a51_15_the_call_ends_with_its_connection() {
        let mut streams = LoadStreams::default();
        request(&mut streams, 7, Some(10));
        let (stream, _) = opened(&finish(&mut streams, 0));
        streams.connection(ONE, None);
        assert!(matches!(finish(&mut streams, 1)[..], [TreeEffect::CloseLoadStream { .. }]));
        assert_eq!(end(&mut streams, 1, stream, Code::Unavailable), Ended::Ignored);
        streams.connection(ONE, Some(AttemptId(2)));
        assert_ne!(opened(&finish(&mut streams, 2)).0, stream);
    }
}
