//! One clock for all processes of a run, and the scheduling delays of this machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of the system's monotonic clock, which all processes share.
pub(crate) type Micros = u64;

/// One second.
pub(crate) const SECOND: Micros = 1_000_000;
/// One millisecond.
pub(crate) const MILLI: Micros = 1_000;

/// The time now.
pub(crate) fn now() -> Micros {
    let time = clock_gettime(ClockId::Monotonic);
    // Monotonic time begins at zero when the machine starts.
    time.tv_sec.unsigned_abs() * SECOND + time.tv_nsec.unsigned_abs() / 1_000
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A thread was due at `at - late` and ran at `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) at: Micros,
    pub(crate) late: Micros,
}

/// Starts a thread that reports how late the machine wakes it, if the delay is significant.
pub(crate) fn watch_lateness(mut report: impl FnMut(Late) + Send + 'static) {
    const TICK: Duration = Duration::from_millis(10);
    const WORTH: Micros = 30 * MILLI;
    std::thread::spawn(move || {
        loop {
            let due = now() + micros(TICK);
            std::thread::sleep(TICK);
            let at = now();
            let late = at.saturating_sub(due);
            if late > WORTH {
                report(Late { at, late });
            }
        }
    });
}

/// The scheduling delays of a run, by time.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    sorted: Vec<Late>,
}

impl Delays {
    pub(crate) fn new(mut delays: Vec<Late>) -> Self {
        delays.sort_by_key(|late| late.at);
        Self { sorted: delays }
    }

    /// The longest delay in progress in this interval.
    pub(crate) fn longest(&self, from: Micros, to: Micros) -> Micros {
        let first = self.sorted.partition_point(|late| late.at < from);
        let under_way = self.sorted[first..].iter().take_while(|late| late.at - late.late <= to);
        under_way.map(|late| late.late).max().unwrap_or(0)
    }

    /// The longest delay of the run.
    pub(crate) fn max(&self) -> Micros {
        self.sorted.iter().map(|late| late.late).max().unwrap_or(0)
    }
}
