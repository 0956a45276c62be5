//! One script from beginning to end: chaos, calm, judgement, shutdown.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proxyless_sans_io::Time;

use crate::clients::sessions;
use crate::laws::invariants::{self, Violation};
use crate::laws::liveness::{self, Bound, Plan};
use crate::laws::{fresh, oracle, outliers, owners, shares};
use crate::script::generate;
use crate::script::{Mood, Script};
use crate::world::{Background, World};

mod explain;
mod minimise;

pub use self::explain::explain;

/// How long a world has to come to rest: the longest backoff, and a failover timer for every priority of every leaf.
const CALM_ROUNDS: u32 = 70;
const CALM_ROUND: Duration = Duration::from_secs(10);
/// In the first rounds RPCs follow each other faster: what waits for one of them to connect is not kept waiting.
const FIRST_ROUNDS: u32 = 12;
const FIRST_ROUND: Duration = Duration::from_secs(1);
/// Longer than unused connections linger.
const SETTLE: Duration = Duration::from_secs(7);

/// One in so many worlds is compared with a new one.
const COMPARED: u64 = 3;
/// One in so many worlds is looked at once more after a long time.
const LONG_LIVED: u64 = 6;

/// One in so many seeds runs twice, and must do the same both times.
const TWICE: u64 = 64;

thread_local! {
    /// Where this thread panicked last, if panics are kept quiet.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What came of a run that found nothing wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal runs.
    pub hash: u64,
    /// How many calls ended well.
    pub succeeded: u64,
    /// How many did not.
    pub failed: u64,
    /// How many calls waited for a stream of their connection.
    pub held: u64,
    /// How many load reports were heard.
    pub load_reports: u64,
    /// How many RPCs went where their cookie said.
    pub kept_sessions: u64,
    /// How often an ejected endpoint was seen.
    pub ejections: u64,
    /// How often a channel that runs at the end went IDLE.
    pub idles: u64,
    /// How many snapshots were published at the end of the chaos by the channels that ran then.
    pub publishes: u64,
}

/// What went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What.
    pub violation: Violation,
    /// When.
    pub at: Time,
    /// What happened before, if that was kept.
    pub trace: Vec<String>,
    /// The policy trees of the channels, if the trace was kept.
    pub trees: Vec<String>,
}

/// Whether a run keeps what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// No: that is faster.
    Off,
    /// Yes.
    On,
}

/// The script of a seed.
#[must_use]
pub fn script(seed: u64) -> Script {
    generate::script(seed)
}

/// The script of a seed as it was before worlds had more to them: what once failed in such a world is found there.
#[must_use]
pub fn plain_script(seed: u64) -> Script {
    generate::plain_script(seed)
}

/// Has panics print nothing: a run that panics is a failure, which says where.
pub fn keep_panics_quiet() {
    panic::set_hook(Box::new(|info| {
        PANICKED_AT.set(info.location().map(ToString::to_string));
    }));
}

/// Runs the script of a seed; now and then twice, to see that the same comes of it.
///
/// # Errors
/// If a run fails, or two runs differ.
pub fn check(seed: u64) -> Result<Report, Box<Failure>> {
    let script = script(seed);
    let report = run(&script, Trace::Off)?;
    if seed.is_multiple_of(TWICE) {
        let again = run(&script, Trace::Off)?;
        if again != report {
            let violation = Violation::new("a seed is one world", format!("{report:?}, then {again:?}"));
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

/// Without RPCs every channel goes IDLE; with the next ones it is as good as before.
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

/// Ends all faults and waits until nothing changes any more. RPCs go on, since some policies connect for them only; when
/// the time is over that the faults may cost, they go where they must.
///
/// # Errors
/// If an invariant breaks, or something that could serve does not in time.
pub(crate) fn settle(world: &mut World) -> Result<(), Violation> {
    world.calm_down();
    world.background = Background::Streams;
    let (plan, bound) = (Plan::of(world), Bound::when_calm(world));
    let end = world.now() + bound.total();
    for round in 0..CALM_ROUNDS {
        let wrong = plan.attempt(world)?;
        let late = world.now() > end;
        Violation::unless(wrong.is_none() || !late, "what can serve, serves in time", || {
            format!("{}, after {bound:?}", wrong.unwrap_or_default())
        })?;
        world.run_for(if round < FIRST_ROUNDS { FIRST_ROUND } else { CALM_ROUND })?;
    }
    Ok(())
}
