//! The timing of faults, constant or flapping, and configuration changes meanwhile.

use std::time::Duration;

use proxyless_sans_io::Rng;
use tokio::time::{Instant, sleep_until};

use crate::fault::Fault;
use crate::world::{Host, World};

/// A period of faults.
#[derive(Clone, Debug)]
pub(crate) struct Storm {
    pub(crate) lasting: Duration,
    /// The longest time between the end of a fault and its next beginning, or the other way round.
    pub(crate) flapping: Option<Duration>,
    /// The longest time between two changes of the endpoints.
    pub(crate) churn: Option<Duration>,
    pub(crate) rng: Rng,
}

impl Storm {
    /// The faults are constant, and the configuration does not change.
    pub(crate) fn steady(lasting: Duration) -> Self {
        Self { lasting, flapping: None, churn: None, rng: Rng::new(0) }
    }

    /// Runs it, and leaves the faults as they are at its end. `check` is called regularly and at the end, with the time
    /// so far and the number of changes.
    pub(crate) async fn rage(
        &mut self,
        world: &World,
        faults: &[(Host, Fault)],
        mut check: impl FnMut(Duration, usize),
    ) {
        const CHECK_INTERVAL: Duration = Duration::from_secs(5);
        let start = Instant::now();
        let end = start + self.lasting;
        for &(host, fault) in faults {
            world.begin(host, fault).await;
        }
        let mut wrong = vec![true; faults.len()];
        let (mut next_flap, mut next_churn) = (self.next(self.flapping), self.next(self.churn));
        let (mut changes, mut next_check) = (0, start + CHECK_INTERVAL);
        loop {
            let next = next_flap.min(next_churn).min(next_check).min(end);
            sleep_until(next).await;
            if next == next_check || next == end {
                check(start.elapsed(), changes);
                next_check += CHECK_INTERVAL;
                if next == end {
                    return;
                }
                continue;
            }
            changes += 1;
            if next == next_flap {
                let which = self.below(faults.len());
                let ((host, fault), wrong) = (faults[which], &mut wrong[which]);
                match std::mem::replace(wrong, !*wrong) {
                    true => world.end(host, fault),
                    false => world.begin(host, fault).await,
                }
                next_flap = self.next(self.flapping);
            } else {
                let mut some = world.all();
                self.rng.shuffle(&mut some);
                some.truncate(1 + self.below(some.len()));
                world.set_endpoints(some);
                next_churn = self.next(self.churn);
            }
        }
    }

    fn next(&mut self, longest: Option<Duration>) -> Instant {
        const NEVER: Duration = Duration::from_secs(1 << 30);
        Instant::now() + longest.map_or(NEVER, |longest| longest.mul_f64(self.rng.unit().max(0.001)))
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).expect("a small number")
    }
}
