//! `inner shared`: the cache lines that the RPCs of two threads both write. Two threads make calls in turns under
//! valgrind's lackey, which prints each memory access; a line that both have written would be contended if they ran at
//! once. The count is the same on every machine, unlike the time of contention.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::ValueEnum as _;
use proxyless_mesh::channel_core::DataPlane;
use proxyless_sans_io::Rng;

use crate::mesh::{Mesh, Policy};
use crate::pick::{Work, calls};
use crate::world::World;

/// Written at the start and at the end of the calls of a thread, as a mark in the trace.
static MARK: Mark = Mark(AtomicU64::new(0));

#[repr(align(64))]
struct Mark(AtomicU64);

const LINE: u64 = 64;
/// The number of calls that fill caches and reserves.
pub(crate) const WARM_UP: u32 = 100;
const CALLS: u32 = 20;

/// Runs the calls, for lackey.
pub(crate) fn run(policy: Policy) {
    println!("{:x}", std::ptr::from_ref(&MARK).addr());
    let mesh = Mesh { policy, outlier_detection: true, ..Mesh::connected(9) };
    let world = World::serving(&mesh);
    let Some(plane) = &world.plane else { return };
    std::thread::scope(|scope| {
        // Both threads live until the end, so that they have different stacks and thread-locals.
        let threads = [1, 2].map(|seed| {
            let (turns, done) = (channel(), channel());
            scope.spawn(move || thread(plane, seed, &turns.1, &done.0));
            (turns.0, done.1)
        });
        for number in [WARM_UP, CALLS] {
            for (turn, done) in &threads {
                // A thread that is gone has no turn.
                if turn.send(number).is_ok() {
                    let _ = done.recv();
                }
            }
        }
    });
}

fn thread(plane: &DataPlane, seed: u64, turns: &Receiver<u32>, done: &Sender<()>) {
    let mut rng = Rng::new(seed);
    for number in turns {
        if number == CALLS {
            MARK.0.store(seed, Ordering::Relaxed);
        }
        calls(plane, Work::Rpc, number, &mut rng);
        if number == CALLS {
            MARK.0.store(0, Ordering::Relaxed);
        }
        if done.send(()).is_err() {
            return;
        }
    }
}

/// The number of lines that both threads write.
pub(crate) fn count(policy: Policy) -> Result<u64, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find the own executable: {error}"))?;
    let name = policy.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=1"])
        .arg(program)
        .args(["shared", &name])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("valgrind could not be run: {error}"))?;
    let trace = child.stdout.take().ok_or("valgrind has no output")?;
    let shared = shared_lines(BufReader::new(trace));
    let status = child.wait().map_err(|error| format!("valgrind could not be waited for: {error}"))?;
    match shared {
        Some(shared) if status.success() => Ok(shared),
        _ => Err(format!("the trace of memory accesses has no marks ({status})")),
    }
}

/// Reads ` S address,size` (a write) and ` M address,size` (a read and a write) between the marks.
fn shared_lines(trace: impl std::io::BufRead) -> Option<u64> {
    let mut mark = None;
    let mut marks = 0;
    let mut written = [BTreeSet::new(), BTreeSet::new()];
    for line in trace.split(b'\n') {
        let line = line.ok()?;
        let Ok(line) = std::str::from_utf8(&line) else { continue };
        if mark.is_none() && !line.starts_with("==") {
            mark = u64::from_str_radix(line.trim(), 16).ok();
            continue;
        }
        let Some(access) = line.strip_prefix(" S ").or_else(|| line.strip_prefix(" M ")) else { continue };
        let Some((address, size)) = access.split_once(',') else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        let size: u64 = size.trim().parse().unwrap_or(1);
        if Some(address) == mark {
            marks += 1;
        } else if let (1, thread) | (3, thread) = (marks, usize::from(marks > 1)) {
            let [first, second] = &mut written;
            let lines = if thread == 0 { first } else { second };
            lines.extend(address / LINE..=(address + size - 1) / LINE);
        }
    }
    let [first, second] = written;
    (marks == 4).then(|| first.intersection(&second).count() as u64)
}
