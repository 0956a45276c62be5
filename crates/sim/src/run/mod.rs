//! Runs one script: the chaos, then a calm phase, the checks, and the shutdown.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proxyless_sans_io::Time;

use crate::clients::sessions;
use crate::laws::invariants::{self, Violation};
use crate::laws::liveness::{self, Bound, Plan};
use crate::laws::{faults, fresh, oracle, outliers, owners, shares};
use crate::script::generate;
use crate::script::{Mood, Script};
use crate::world::{Background, World};

mod explain;
mod minimise;

pub use self::explain::explain;

/// The time that a world has to come to rest: the longest backoff, and a failover timer for every priority of every
/// leaf.
const CALM_ROUNDS: u32 = 70;
const CALM_ROUND: Duration = Duration::from_secs(10);
/// RPCs follow each other faster in the first rounds, so that policies that connect on RPCs only are not kept waiting.
const FIRST_ROUNDS: u32 = 12;
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// Longer than unused connections linger.
const SETTLE: Duration = Duration::from_secs(7);

/// One in this many worlds is compared with a fresh one.
const COMPARED: u64 = 3;
/// One in this many worlds is checked again after a long time.
const LONG_LIVED: u64 = 6;

/// One in this many seeds runs twice; both runs must be equal.
const TWICE: u64 = 64;

thread_local! {
    /// Where this thread panicked last, while panics are silenced.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The result of a run that broke no rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hash of the log; equal for equal runs.
    pub hash: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that waited for a stream of their connection.
    pub held: u64,
    /// Load reports that the server received.
    pub load_reports: u64,
    /// RPCs that went to the host in their cookie.
    pub kept_sessions: u64,
    /// Times that an ejected endpoint was observed.
    pub ejections: u64,
    /// Times that a channel still running at the end went IDLE.
    pub idles: u64,
    /// Snapshots published by the end of the chaos, by the channels running then.
    pub publishes: u64,
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The rule and the details.
    pub violation: Violation,
    /// The virtual time at which it broke.
    pub at: Time,
    /// The log up to then, if it was kept.
    pub trace: Vec<String>,
    /// The policy trees of the channels, if the trace was kept.
    pub trees: Vec<String>,
}

/// Whether a run keeps its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// No, which is faster.
    Off,
    /// Yes.
    On,
}

/// The script of a seed.
#[must_use]
pub fn script(seed: u64) -> Script {
    generate::script(seed)
}

/// The script of a seed without later extensions of the generator: old failures are found there.
#[must_use]
pub fn plain_script(seed: u64) -> Script {
    generate::plain_script(seed)
}

/// Silences panics: a run that panics is a failure, which names the place.
pub fn keep_panics_quiet() {
    panic::set_hook(Box::new(|info| {
        PANICKED_AT.set(info.location().map(ToString::to_string));
    }));
}

/// Runs the script of a seed; some seeds run twice, to check that the simulator is deterministic.
///
/// # Errors
/// If a run fails, or two runs differ.
pub fn check(seed: u64) -> Result<Report, Box<Failure>> {
    let script = script(seed);
    let report = run(&script, Trace::Off)?;
    if seed.is_multiple_of(TWICE) {
        let again = run(&script, Trace::Off)?;
        if again != report {
            let violation =
                Violation::new("a seed determines its world", format!("{report:?}, then {again:?}"));
            return Err(Box::new(Failure {
                violation,
                at: Time::ZERO,
                trace: Vec::new(),
                trees: Vec::new(),
            }));
        }
    }
    Ok(report)
}

/// Runs a script.
///
/// # Errors
/// If an invariant or the oracle was not satisfied, or a core panicked.
pub fn run(script: &Script, trace: Trace) -> Result<Report, Box<Failure>> {
    let mut world = World::new(script);
    if trace == Trace::On {
        world = world.with_trace();
    }
    // The world is not used again after a panic, except for its log.
    let result = catch_unwind(AssertUnwindSafe(|| live(&mut world)));
    let violation = match result {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
            match PANICKED_AT.take() {
                Some(place) => Violation::new("nothing panics", format!("{place}: {text}")),
                None => Violation::new("nothing panics", text),
            }
        }
    };
    let now = world.now();
    let trees = match trace {
        Trace::On => world.channels().map(|channel| channel.core.describe(now).to_string()).collect(),
        Trace::Off => Vec::new(),
    };
    Err(Box::new(Failure { violation, at: now, trace: world.log().lines().to_vec(), trees }))
}

fn live(world: &mut World) -> Result<Report, Violation> {
    world.run_script()?;
    let publishes = world.channels().map(|channel| channel.publishes).sum();
    settle(world)?;
    oracle::check(world)?;
    shares::check(world)?;
    faults::check(world)?;
    if world.rng.below(COMPARED) == 0 {
        fresh::check(world)?;
    }
    if world.settings.mood == Mood::Chaos {
        liveness::drill(world)?;
    }
    if world.settings.sessions {
        sessions::check(world)?;
    }
    if world.settings.outliers {
        outliers::storm(world)?;
    }
    if world.settings.sessions {
        sessions::check_idle(world)?;
    }
    world.run_for(SETTLE)?;
    invariants::at_rest(world)?;
    if world.rng.below(LONG_LIVED) == 0 {
        owners::check(world)?;
    }
    come_back(world)?;
    let idles = world.channels().map(|channel| channel.idles).sum();
    world.shut_down()?;
    let calls = world.calls();
    Ok(Report {
        hash: world.log().hash(),
        succeeded: calls.succeeded,
        failed: calls.failed,
        held: calls.turns,
        load_reports: calls.ledger.pulled,
        kept_sessions: world.sessions.kept,
        ejections: world.limits.ejections,
        idles,
        publishes,
    })
}

/// Without RPCs every channel goes IDLE; the next RPCs are served as before.
fn come_back(world: &mut World) -> Result<(), Violation> {
    let Some(timeout) = world.settings.idle_timeout else { return Ok(()) };
    world.background = Background::Silent;
    world.run_for(timeout * 2 + SETTLE)?;
    for channel in world.channels() {
        let in_use = !world.calls().of_channel(channel.epoch).is_empty();
        Violation::unless(channel.core.is_idle() || in_use, "a channel without RPCs goes IDLE", || {
            format!("channel {}", channel.index)
        })?;
    }
    settle(world)?;
    oracle::check(world)
}

/// Ends all faults and waits until the world is at rest. RPCs continue, because some policies connect only for them;
/// after the bound on recovery, each must go where the mesh says.
///
/// # Errors
/// If an invariant breaks, or recovery takes longer than its bound.
pub(crate) fn settle(world: &mut World) -> Result<(), Violation> {
    world.calm_down();
    world.background = Background::Streams;
    let (plan, bound) = (Plan::of(world), Bound::when_calm(world));
    let end = world.now() + bound.total();
    for round in 0..CALM_ROUNDS {
        let wrong = plan.attempt(world)?;
        let late = world.now() > end;
        Violation::unless(wrong.is_none() || !late, "RPCs are served in time", || {
            format!("{}, after {bound:?}", wrong.unwrap_or_default())
        })?;
        world.run_for(if round < FIRST_ROUNDS { FIRST_ROUND } else { CALM_ROUND })?;
    }
    Ok(())
}
