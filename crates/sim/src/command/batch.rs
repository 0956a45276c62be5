//! Runs many seeds on several threads.
//!
//! Input: the seeds, a function that checks one, and a function that explains a failure. Output: [`News`] during the
//! run, and a [`Summary`] at the end.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use proxyless_sim::run::{Failure, Report};

/// Failing seeds that are explained per broken rule; more would repeat the same.
const EXPLAINED: usize = 2;
/// Failing seeds that are listed per broken rule.
const LISTED: u64 = 12;

/// The interval of progress messages.
const PROGRESS: Duration = Duration::from_secs(15);
/// A seed takes some milliseconds: one that runs this long is in an endless loop.
const SLOW: Duration = Duration::from_secs(60);

/// The seeds to run, and the limits.
pub(crate) struct Batch {
    pub(crate) seeds: Range<u64>,
    pub(crate) jobs: NonZeroUsize,
    /// No seed is started after this time.
    pub(crate) limit: Option<Duration>,
}

/// A message during the run.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// A seed failed; `text` explains it.
    Failed { text: String },
    /// A seed broke a rule that was explained for other seeds.
    Again { seed: u64, rule: &'static str },
    /// The number of seeds done.
    Progress { done: u64, failed: u64, rate: f64 },
    /// A seed that does not end.
    Slow { seed: u64, since: Duration },
}

/// The result of a batch.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// The number of seeds that broke each rule.
    pub(crate) broken: BTreeMap<&'static str, u64>,
    pub(crate) took: Duration,
}

/// A message of a worker thread.
enum Message {
    Passed,
    Explained { text: String, rule: &'static str },
    Failed { seed: u64, rule: &'static str },
}

/// State shared by the worker threads.
struct Shared {
    left: Mutex<Range<u64>>,
    /// The seed that each thread runs, and its start.
    running: Vec<Mutex<Option<(u64, Instant)>>>,
    /// The number of failures explained, or being explained, per rule.
    explained: Mutex<BTreeMap<&'static str, usize>>,
}

impl Batch {
    /// Runs all seeds. `check` runs one; `explain` returns the text of a failure.
    pub(crate) fn run(
        self,
        check: impl Fn(u64) -> Result<Report, Box<Failure>> + Sync,
        explain: impl Fn(u64) -> String + Sync,
        mut tell: impl FnMut(News) -> io::Result<()>,
    ) -> io::Result<Summary> {
        let started = Instant::now();
        let shared = Shared {
            left: Mutex::new(self.seeds),
            running: (0..self.jobs.get()).map(|_| Mutex::default()).collect(),
            explained: Mutex::default(),
        };
        let may_go_on = || self.limit.is_none_or(|limit| started.elapsed() < limit);
        let mut summary = Summary::default();
        thread::scope(|scope| {
            let (sender, messages) = mpsc::channel();
            for running in &shared.running {
                let (sender, shared, check, explain) = (sender.clone(), &shared, &check, &explain);
                scope.spawn(move || work(shared, running, may_go_on, check, explain, &sender));
            }
            drop(sender);
            let mut next_progress = started + PROGRESS;
            loop {
                let wait = next_progress.saturating_duration_since(Instant::now());
                match messages.recv_timeout(wait) {
                    Ok(message) => {
                        if let Some(news) = summary.add(message) {
                            tell(news)?;
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                if Instant::now() < next_progress {
                    continue;
                }
                next_progress += PROGRESS;
                let Summary { done, failed, .. } = summary;
                tell(News::Progress { done, failed, rate: done as f64 / started.elapsed().as_secs_f64() })?;
                for (seed, since) in shared.running.iter().filter_map(|running| *lock(running)) {
                    let since = since.elapsed();
                    if since >= SLOW {
                        tell(News::Slow { seed, since })?;
                    }
                }
            }
        })
        .map(|()| Summary { took: started.elapsed(), ..summary })
    }
}

impl Summary {
    fn add(&mut self, message: Message) -> Option<News> {
        self.done += 1;
        self.failed += u64::from(!matches!(message, Message::Passed));
        match message {
            Message::Passed => None,
            Message::Explained { text, rule } => {
                self.count(rule);
                Some(News::Failed { text })
            }
            Message::Failed { seed, rule } => {
                let count = self.count(rule);
                (count <= LISTED).then_some(News::Again { seed, rule })
            }
        }
    }

    fn count(&mut self, rule: &'static str) -> u64 {
        let count = self.broken.entry(rule).or_default();
        *count += 1;
        *count
    }
}

/// A worker thread: takes seeds until there are none left, or the receiver is gone.
fn work(
    shared: &Shared,
    running: &Mutex<Option<(u64, Instant)>>,
    may_go_on: impl Fn() -> bool,
    check: &impl Fn(u64) -> Result<Report, Box<Failure>>,
    explain: &impl Fn(u64) -> String,
    sender: &Sender<Message>,
) {
    while may_go_on() {
        let Some(seed) = lock(&shared.left).next() else { return };
        *lock(running) = Some((seed, Instant::now()));
        let result = check(seed);
        // Explaining a failure runs its world hundreds of times.
        *lock(running) = None;
        let message = match result {
            Ok(_) => Message::Passed,
            Err(failure) => {
                let rule = failure.violation.rule;
                if shared.is_to_be_explained(rule) {
                    Message::Explained { text: explain(seed), rule }
                } else {
                    Message::Failed { seed, rule }
                }
            }
        };
        if sender.send(message).is_err() {
            return;
        }
    }
}

impl Shared {
    fn is_to_be_explained(&self, rule: &'static str) -> bool {
        let mut explained = lock(&self.explained);
        let count = explained.entry(rule).or_default();
        *count += 1;
        *count <= EXPLAINED
    }
}

/// The maps are consistent even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proxyless_sans_io::Time;
    use proxyless_sim::Violation;

    use super::*;

    fn batch(seeds: Range<u64>, jobs: usize) -> Batch {
        Batch { seeds, jobs: NonZeroUsize::new(jobs).expect("jobs"), limit: None }
    }

    fn fails(rule: &'static str) -> Result<Report, Box<Failure>> {
        let violation = Violation::new(rule, "");
        Err(Box::new(Failure { violation, at: Time::ZERO, trace: Vec::new(), trees: Vec::new() }))
    }

    #[test]
    fn every_seed_runs_once_however_many_threads_there_are() {
        for jobs in [1, 2, 7] {
            let ran = Mutex::new(Vec::new());
            let check = |seed| {
                lock(&ran).push(seed);
                Ok(Report::default())
            };
            let summary = batch(5..105, jobs).run(check, |_| String::new(), |_| Ok(())).expect("runs");
            let mut ran = ran.into_inner().expect("nothing panicked");
            ran.sort_unstable();
            assert!(ran.into_iter().eq(5..105), "{jobs} jobs");
            assert_eq!((summary.done, summary.failed), (100, 0));
        }
    }

    #[test]
    fn the_first_failures_of_each_rule_are_explained_and_the_others_named() {
        for jobs in [1, 3] {
            let check = |seed| match seed % 10 {
                3 => fails("three"),
                7 if seed == 7 => fails("seven"),
                _ => Ok(Report::default()),
            };
            let (mut texts, mut again) = (Vec::new(), Vec::new());
            let tell = |news| {
                match news {
                    News::Failed { text } => texts.push(text),
                    News::Again { rule, .. } => again.push(rule),
                    _ => {}
                }
                Ok(())
            };
            let summary = batch(0..60, jobs).run(check, |seed| format!("seed {seed}"), tell).expect("runs");
            assert_eq!((summary.done, summary.failed), (60, 7));
            assert_eq!(texts.len(), EXPLAINED + 1, "{texts:?}");
            assert!(texts.contains(&"seed 7".to_owned()), "{texts:?}");
            assert_eq!(again, vec!["three"; 6 - EXPLAINED]);
            assert_eq!(summary.broken, [("seven", 1), ("three", 6)].into());
        }
    }

    #[test]
    fn where_every_seed_fails_few_are_named() {
        let mut told = 0;
        let tell = |_| {
            told += 1;
            Ok(())
        };
        let summary = batch(0..1_000, 1).run(|_| fails("always"), |_| String::new(), tell).expect("runs");
        assert_eq!((told, summary.failed), (LISTED, 1_000));
    }

    #[test]
    fn no_seed_begins_after_the_limit() {
        let batch = Batch { limit: Some(Duration::ZERO), ..batch(0..u64::MAX, 2) };
        let summary = batch.run(|_| Ok(Report::default()), |_| String::new(), |_| Ok(())).expect("runs");
        assert_eq!(summary.done, 0);
    }

    #[test]
    fn who_cannot_be_told_stops_the_batch() {
        let tell = |_| Err(io::ErrorKind::BrokenPipe.into());
        let error = batch(0..u64::MAX, 2).run(|_| fails("always"), |_| String::new(), tell).err();
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::BrokenPipe));
    }
}
