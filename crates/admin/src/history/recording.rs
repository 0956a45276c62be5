//! The recording: the last samples of each series, and the last marks. Pure: time and readings come from outside.
//!
//! A series gets a place with its first RPC and keeps it until it had none for as long as the recording; a series that
//! finds no place is counted as left out. Full, the recording has about 5 MB.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proxyless::telemetry::instruments::LATENCY_BOUNDS;

use super::answer::{HistoryMark, HistorySeries, HistoryView, LeftOut};
use super::counts::Totals;
use super::{Detail, Question};

/// The number of samples: five minutes of seconds.
pub(super) const SAMPLES: usize = 300;
const MOST_TARGETS: usize = 32;
const MOST_CLUSTERS: usize = 64;
const MOST_ENDPOINTS: usize = 256;
const MOST_MARKS: usize = 512;

/// What a series is about. The order is that of the answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Target { target: Arc<str> },
    Cluster { target: Arc<str>, cluster: Arc<str> },
    Endpoint { target: Arc<str>, cluster: Arc<str>, endpoint: Arc<str> },
}

/// All series as they are now.
pub(super) type Reading = BTreeMap<Key, Totals>;

/// The views of all channels, as far as they matter here.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The failed calls of each endpoint since it exists.
    pub(super) failed: BTreeMap<Key, u64>,
    pub(super) channels: Vec<SeenChannel>,
}

/// The marks of a channel.
#[derive(Debug, Default)]
pub(super) struct SeenChannel {
    pub(super) id: u64,
    /// The number of events since the beginning.
    pub(super) events_total: u64,
    /// The latest events, those that are not marks too.
    pub(super) marks: Vec<Option<HistoryMark>>,
}

/// The samples of five minutes.
#[derive(Debug)]
pub(super) struct Recording {
    started: f64,
    /// The number of the last sample; the first is 1.
    last_sample: u64,
    times: VecDeque<f64>,
    tracks: BTreeMap<Key, Track>,
    waiting: BTreeMap<Key, Waiting>,
    errors: EndpointErrors,
    /// With the sample in which each was first seen.
    marks: VecDeque<(u64, HistoryMark)>,
    /// The number of events of each channel that were looked at.
    events_seen: BTreeMap<u64, u64>,
}

/// A series with a place.
#[derive(Debug)]
struct Track {
    totals: Totals,
    /// The last one belongs to the last sample.
    points: VecDeque<Point>,
    /// The last sample with RPCs.
    busy: u64,
}

/// A series without a place.
#[derive(Debug)]
struct Waiting {
    calls: u64,
    /// The last sample with RPCs.
    busy: Option<u64>,
}

/// One second of a series; nothing is known of a second in which it did not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Point {
    rate: Option<f32>,
    errors: Option<f32>,
    p50: Option<f32>,
    p90: Option<f32>,
    p99: Option<f32>,
}

/// The errors of endpoints per second, which hold from one view to the next.
#[derive(Debug, Default)]
struct EndpointErrors {
    time: f64,
    failed: BTreeMap<Key, u64>,
    rates: BTreeMap<Key, f64>,
}

impl Recording {
    pub(super) fn new(now: f64) -> Self {
        Self {
            started: now,
            last_sample: 0,
            times: VecDeque::with_capacity(SAMPLES),
            tracks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            errors: EndpointErrors::default(),
            marks: VecDeque::new(),
            events_seen: BTreeMap::new(),
        }
    }

    /// Adds a sample: what all series have counted until now, and the views of the channels if they were taken.
    pub(super) fn sample(&mut self, now: f64, reading: Reading, seen: Option<Seen>) {
        // A clock that was set back gives no rates.
        let span = self.times.back().map(|before| now - before).filter(|span| *span > 0.0);
        self.last_sample += 1;
        push(&mut self.times, now);
        if let Some(Seen { failed, channels }) = seen {
            self.errors.update(now, failed);
            self.mark(channels);
        }
        self.marks.retain(|(_, mark)| mark.time > now - SAMPLES as f64);
        self.tracks.values_mut().for_each(|track| push(&mut track.points, Point::default()));
        for (key, totals) in reading {
            let errors = self.errors.rates.get(&key).copied();
            match self.tracks.get_mut(&key) {
                Some(track) => track.sample(totals, span, self.last_sample, errors),
                None => self.place(key, totals, span),
            }
        }
        self.give_up_places();
    }

    /// Gives a series without a place one, if it has RPCs and a place is free.
    fn place(&mut self, key: Key, totals: Totals, span: Option<f64>) {
        let calls = totals.calls();
        let before = self.waiting.get(&key);
        // Calls from before the first sample say nothing about the time since.
        let (first, known) = (self.last_sample == 1, before.map_or(0, |before| before.calls));
        if first || calls == known {
            let busy = before.and_then(|before| before.busy);
            self.waiting.insert(key, Waiting { calls, busy });
            return;
        }
        let taken = self.tracks.keys().filter(|other| key.is_like(other)).count();
        if taken >= key.places() {
            self.waiting.insert(key, Waiting { calls, busy: Some(self.last_sample) });
            return;
        }
        self.waiting.remove(&key);
        let mut track =
            Track { totals: Totals::default(), points: [Point::default()].into(), busy: self.last_sample };
        if known == 0 {
            track.sample(totals, span, self.last_sample, self.errors.rates.get(&key).copied());
        } else {
            // Only the number of its earlier calls is known: its rates begin with the next sample.
            track.totals = totals;
        }
        self.tracks.insert(key, track);
    }

    /// Frees the places of series that had no RPCs for as long as the recording.
    fn give_up_places(&mut self) {
        let Self { tracks, waiting, last_sample, .. } = self;
        tracks.retain(|key, track| {
            let kept = *last_sample - track.busy < SAMPLES as u64;
            if !kept {
                waiting.insert(key.clone(), Waiting { calls: track.totals.calls(), busy: None });
            }
            kept
        });
    }

    /// Adds the marks that are new.
    fn mark(&mut self, channels: Vec<SeenChannel>) {
        let before = std::mem::take(&mut self.events_seen);
        for SeenChannel { id, events_total, marks } in channels {
            let seen = before.get(&id).copied().unwrap_or(0);
            let new = usize::try_from(events_total.saturating_sub(seen)).unwrap_or(usize::MAX);
            let skipped = marks.len().saturating_sub(new);
            let marks = marks.into_iter().skip(skipped).flatten();
            self.marks.extend(marks.map(|mark| (self.last_sample, mark)));
            self.events_seen.insert(id, events_total);
        }
        let excess = self.marks.len().saturating_sub(MOST_MARKS);
        self.marks.drain(..excess);
    }

    /// The answer to a question.
    pub(super) fn view(&self, question: Question) -> HistoryView {
        let Question { since, detail } = question;
        let oldest = self.last_sample - self.times.len() as u64;
        // A number that this recording has not reached is one of another recording.
        let since = since.filter(|since| *since <= self.last_sample).unwrap_or(0);
        let skipped = usize::try_from(since.saturating_sub(oldest)).unwrap_or(usize::MAX);
        let asked =
            |(key, _): &(&Key, &Track)| detail == Detail::Endpoints || !matches!(key, Key::Endpoint { .. });
        let series = self.tracks.iter().filter(asked);
        let marks = self.marks.iter().filter(|(sample, _)| *sample > since);
        HistoryView {
            recording: (self.started * 1000.0) as u64,
            last_sample: self.last_sample,
            times: self.times.iter().skip(skipped).copied().collect(),
            series: series.map(|(key, track)| track.view(key, skipped, self.times.len())).collect(),
            left_out: self.left_out(),
            marks: marks.map(|(_, mark)| mark.clone()).collect(),
        }
    }

    fn left_out(&self) -> LeftOut {
        let recent = |busy: u64| self.last_sample - busy < SAMPLES as u64;
        let busy = self.waiting.iter().filter(|(_, waiting)| waiting.busy.is_some_and(recent));
        let mut left_out = LeftOut::default();
        for (key, _) in busy {
            *match key {
                Key::Target { .. } => &mut left_out.targets,
                Key::Cluster { .. } => &mut left_out.clusters,
                Key::Endpoint { .. } => &mut left_out.endpoints,
            } += 1;
        }
        left_out
    }
}

fn push<T>(ring: &mut VecDeque<T>, value: T) {
    if ring.len() == SAMPLES {
        ring.pop_front();
    }
    ring.push_back(value);
}

impl Key {
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The number of series of this kind.
    fn places(&self) -> usize {
        match self {
            Self::Target { .. } => MOST_TARGETS,
            Self::Cluster { .. } => MOST_CLUSTERS,
            Self::Endpoint { .. } => MOST_ENDPOINTS,
        }
    }
}

impl Track {
    /// Sets the point of the last sample.
    fn sample(&mut self, totals: Totals, span: Option<f64>, sample: u64, errors: Option<f64>) {
        let new = totals.since(&self.totals);
        self.totals = totals;
        let calls = new.calls();
        if calls > 0 {
            self.busy = sample;
        }
        let (Some(span), Some(point)) = (span, self.points.back_mut()) else { return };
        let percentile = |part| new.percentile(LATENCY_BOUNDS, part).map(|seconds| seconds as f32);
        let per_second = |calls: u64| (calls as f64 / span) as f32;
        *point = Point {
            rate: Some(per_second(calls)),
            errors: new.failed.map(per_second).or(errors.map(|rate| rate as f32)),
            p50: percentile(0.5),
            p90: percentile(0.9),
            p99: percentile(0.99),
        };
    }

    /// The values from the sample after the skipped ones on.
    fn view(&self, key: &Key, skipped: usize, samples: usize) -> HistorySeries {
        let before = samples - self.points.len();
        let values = |of: fn(&Point) -> Option<f32>, digits: i32| {
            let points = std::iter::repeat_n(None, before).chain(self.points.iter().map(of));
            points.skip(skipped).map(|value| value.map(|value| rounded(value, digits))).collect::<Vec<_>>()
        };
        let (target, cluster, endpoint) = match key {
            Key::Target { target } => (target, None, None),
            Key::Cluster { target, cluster } => (target, Some(cluster), None),
            Key::Endpoint { target, cluster, endpoint } => (target, Some(cluster), Some(endpoint)),
        };
        HistorySeries {
            target: target.to_string(),
            cluster: cluster.map(ToString::to_string),
            endpoint: endpoint.map(ToString::to_string),
            rate: values(|point| point.rate, 2),
            errors: values(|point| point.errors, 2),
            p50: values(|point| point.p50, 6),
            p90: if endpoint.is_none() { values(|point| point.p90, 6) } else { Vec::new() },
            p99: values(|point| point.p99, 6),
        }
    }
}

/// A value rounded to this many decimal places, which keeps its text short.
fn rounded(value: f32, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (f64::from(value) * factor).round() / factor
}

impl EndpointErrors {
    fn update(&mut self, now: f64, failed: BTreeMap<Key, u64>) {
        let span = now - self.time;
        let rate = |(key, now): (&Key, &u64)| {
            let before = *self.failed.get(key)?;
            // An endpoint that left and came back counts from zero.
            let new = if *now < before { *now } else { now - before };
            (span > 0.0).then(|| (key.clone(), new as f64 / span))
        };
        self.rates = failed.iter().filter_map(rate).collect();
        (self.time, self.failed) = (now, failed);
    }
}

#[cfg(test)]
mod tests;
