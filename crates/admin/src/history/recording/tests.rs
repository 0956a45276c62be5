use super::*;
use crate::history::marks::MarkKind;

fn target() -> Key {
    Key::Target { target: "xds:///a".into() }
}

fn cluster(name: &str) -> Key {
    Key::Cluster { target: "xds:///a".into(), cluster: name.into() }
}

fn endpoint(number: usize) -> Key {
    Key::Endpoint { target: "xds:///a".into(), cluster: "c".into(), endpoint: number.to_string().into() }
}

/// So many calls of about a millisecond, some of which failed.
fn calls(number: u64, failed: u64) -> Totals {
    let mut counts = vec![0; LATENCY_BOUNDS.len() + 1];
    counts[7] = number;
    Totals { counts, failed: Some(failed) }
}

fn reading<const N: usize>(of: [(Key, Totals); N]) -> Reading {
    of.into()
}

fn all(recording: &Recording) -> HistoryView {
    recording.view(Question::default())
}

#[test]
fn rates_errors_and_latencies_are_those_of_each_second() {
    let mut recording = Recording::new(100.0);
    for (time, done, failed) in [(100.0, 0, 0), (101.0, 10, 0), (103.0, 30, 4), (104.0, 30, 4)] {
        recording.sample(time, reading([(target(), calls(done, failed))]), None);
    }
    let view = all(&recording);
    assert_eq!((view.recording, view.last_sample), (100_000, 4));
    assert_eq!(view.times, [100.0, 101.0, 103.0, 104.0]);
    let [series] = &view.series[..] else { panic!("{view:?}") };
    assert_eq!((series.target.as_str(), &series.cluster), ("xds:///a", &None));
    assert_eq!(series.rate, [None, Some(10.0), Some(10.0), Some(0.0)]);
    assert_eq!(series.errors, [None, Some(0.0), Some(2.0), Some(0.0)]);
    // The bucket goes from 0.8 to 1 ms.
    assert_eq!(series.p50, [None, Some(0.0009), Some(0.0009), None]);
    assert_eq!(series.p99, [None, Some(0.000998), Some(0.000998), None]);
}

#[test]
fn a_series_that_appears_late_has_no_values_before() {
    let mut recording = Recording::new(0.0);
    recording.sample(1.0, reading([(target(), calls(1, 0))]), None);
    recording.sample(2.0, reading([(target(), calls(2, 0))]), None);
    recording.sample(3.0, reading([(target(), calls(3, 0)), (cluster("late"), calls(7, 7))]), None);
    let view = all(&recording);
    assert_eq!(view.series[1].cluster.as_deref(), Some("late"));
    assert_eq!(view.series[1].rate, [None, None, Some(7.0)]);
    assert_eq!(view.series[1].errors, [None, None, Some(7.0)]);
}

#[test]
fn calls_from_before_the_recording_are_not_a_rate() {
    let mut recording = Recording::new(0.0);
    for (time, done) in [(1.0, 500), (2.0, 500), (3.0, 501), (4.0, 503)] {
        recording.sample(time, reading([(target(), calls(done, 0))]), None);
    }
    assert_eq!(all(&recording).series[0].rate, [None, None, None, Some(2.0)]);
}

#[test]
fn a_series_that_vanishes_has_gaps_until_its_place_is_free() {
    let mut recording = Recording::new(0.0);
    recording.sample(1.0, Reading::new(), None);
    recording.sample(2.0, reading([(target(), calls(5, 0))]), None);
    recording.sample(3.0, Reading::new(), None);
    assert_eq!(all(&recording).series[0].rate, [None, Some(5.0), None]);
    for second in 4..(2 + SAMPLES) {
        recording.sample(second as f64, Reading::new(), None);
        assert_eq!(all(&recording).series.len(), 1, "{second}");
    }
    recording.sample((2 + SAMPLES) as f64, Reading::new(), None);
    assert_eq!(all(&recording).series, []);
}

#[test]
fn counts_that_start_again_do_not_spoil_the_rate() {
    let mut recording = Recording::new(0.0);
    for (time, done) in [(1.0, 0), (2.0, 100), (3.0, 4)] {
        recording.sample(time, reading([(target(), calls(done, 0))]), None);
    }
    assert_eq!(all(&recording).series[0].rate, [None, Some(100.0), Some(4.0)]);
}

#[test]
fn a_clock_that_is_set_back_gives_no_rate() {
    let mut recording = Recording::new(0.0);
    for (time, done) in [(9.0, 0), (10.0, 1), (5.0, 2), (6.0, 4)] {
        recording.sample(time, reading([(target(), calls(done, 0))]), None);
    }
    assert_eq!(all(&recording).series[0].rate, [None, Some(1.0), None, Some(2.0)]);
}

#[test]
fn only_the_last_samples_are_kept() {
    let mut recording = Recording::new(0.0);
    for second in 0..=SAMPLES as u64 + 10 {
        recording.sample(second as f64, reading([(target(), calls(second, 0))]), None);
    }
    let view = all(&recording);
    assert_eq!((view.times.len(), view.times[0]), (SAMPLES, 11.0));
    assert_eq!(view.series[0].rate, [Some(1.0); SAMPLES]);
}

#[test]
fn an_answer_has_what_is_new_since_a_sample() {
    let mut recording = Recording::new(0.0);
    for second in 0..20u64 {
        recording.sample(
            second as f64,
            reading([(target(), calls(second, 0)), (endpoint(1), calls(second, 0))]),
            None,
        );
    }
    let since = |since| recording.view(Question { since: Some(since), detail: Detail::Endpoints });
    assert_eq!(since(18).times, [18.0, 19.0]);
    assert_eq!(since(18).series[1].rate, [Some(1.0), Some(1.0)]);
    assert_eq!((since(20).times.len(), since(20).series[0].p99.len()), (0, 0));
    // A number of another recording.
    assert_eq!(since(21).times.len(), 20);
    let clusters = recording.view(Question { since: None, detail: Detail::Clusters });
    assert_eq!(clusters.series.len(), 1);
}

#[test]
fn series_beyond_the_places_are_left_out_until_one_is_free() {
    let mut recording = Recording::new(0.0);
    let reading =
        |done: u64| (0..MOST_ENDPOINTS + 3).map(|n| (endpoint(n), calls(done, 0))).collect::<Reading>();
    recording.sample(0.0, reading(0), None);
    assert_eq!(all(&recording).left_out, LeftOut::default(), "without RPCs a series needs no place");
    recording.sample(1.0, reading(1), None);
    let view = all(&recording);
    assert_eq!((view.series.len(), view.left_out.endpoints), (MOST_ENDPOINTS, 3));
    // The others are silent from now on.
    let late = |done: u64| -> Reading { [(endpoint(MOST_ENDPOINTS + 2), calls(done, 0))].into() };
    let last = all(&recording).series.iter().any(|s| s.endpoint == Some((MOST_ENDPOINTS + 2).to_string()));
    let mut rates = Vec::new();
    for second in 2..(SAMPLES as u64 + 5) {
        recording.sample(second as f64, late(second), None);
        let view = all(&recording);
        let of = |s: &&HistorySeries| s.endpoint == Some((MOST_ENDPOINTS + 2).to_string());
        rates = view.series.iter().find(of).map(|s| s.rate.clone()).unwrap_or_default();
    }
    assert!(last || !rates.is_empty());
    assert_eq!(rates.last(), Some(&Some(1.0)));
    assert_eq!(all(&recording).left_out.endpoints, 0);
}

#[test]
fn errors_of_endpoints_come_from_views_and_hold_until_the_next() {
    let mut recording = Recording::new(0.0);
    let of = |done| reading([(endpoint(1), Totals { failed: None, ..calls(done, 0) })]);
    let seen = |failed| Some(Seen { failed: [(endpoint(1), failed)].into(), channels: Vec::new() });
    recording.sample(0.0, of(0), seen(3));
    recording.sample(1.0, of(10), None);
    recording.sample(2.0, of(20), seen(7));
    recording.sample(3.0, of(30), None);
    recording.sample(4.0, of(40), seen(1));
    assert_eq!(all(&recording).series[0].errors, [None, None, Some(2.0), Some(2.0), Some(0.5)]);
}

fn mark(time: f64, text: &str) -> Option<HistoryMark> {
    Some(HistoryMark { time, channel: 1, kind: MarkKind::Failover, text: text.to_owned() })
}

fn seen(events_total: u64, marks: Vec<Option<HistoryMark>>) -> Option<Seen> {
    Some(Seen { failed: BTreeMap::new(), channels: vec![SeenChannel { id: 1, events_total, marks }] })
}

#[test]
fn each_event_is_marked_once_and_for_five_minutes() {
    let mut recording = Recording::new(1000.0);
    recording.sample(1000.0, Reading::new(), seen(2, vec![mark(999.0, "a"), None]));
    recording.sample(1001.0, Reading::new(), seen(3, vec![mark(999.0, "a"), None, mark(1000.5, "b")]));
    recording.sample(1002.0, Reading::new(), None);
    let texts = |since| {
        let view = recording.view(Question { since, detail: Detail::Endpoints });
        view.marks.into_iter().map(|mark| mark.text).collect::<Vec<_>>()
    };
    assert_eq!(texts(None), ["a", "b"]);
    assert_eq!(texts(Some(1)), ["b"]);
    assert_eq!(texts(Some(2)), [""; 0]);
    recording.sample(1299.5, Reading::new(), seen(3, vec![None, None, mark(1000.5, "b")]));
    assert_eq!(all(&recording).marks.len(), 1);
    recording.sample(1301.0, Reading::new(), None);
    assert_eq!(all(&recording).marks, []);
}

#[test]
fn marks_are_bounded() {
    let mut recording = Recording::new(0.0);
    for second in 0..10u64 {
        let marks = (0..256).map(|_| mark(second as f64, "x")).collect();
        recording.sample(second as f64, Reading::new(), seen((second + 1) * 1000, marks));
    }
    assert_eq!(all(&recording).marks.len(), MOST_MARKS);
}
