//! Each fault by itself, and what has gone wrong before.

use std::time::Duration;

use crate::fault::Fault;
use crate::load::Rate;
use crate::oracles::{check_end, trial};
use crate::world::{Host, World, simulate};

/// One fault of one server, for a minute.
fn single(name: &str, host: Host, fault: Fault, rate: Rate) {
    simulate(1, async move {
        let world = World::start(name).await;
        trial(&world, &[(host, fault)], Duration::from_secs(60), rate).await;
        check_end(world).await;
    });
}

/// Each of these faults in a world of its own, and all that fail in one message.
fn each(host: Host, faults: Vec<Fault>, rate: Rate) {
    let failed: Vec<String> = faults
        .into_iter()
        .filter_map(|fault| {
            let run = std::panic::catch_unwind(|| single(&format!("{host:?}-{fault:?}"), host, fault, rate));
            let panic = run.err()?;
            let why = panic.downcast_ref::<String>().cloned();
            Some(why.unwrap_or_else(|| format!("{fault:?}: see above")))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn each_fault_of_a_backend() {
    each(Host::Backend(0), Fault::of_backends(), Rate::per_second(10));
}

#[test]
fn each_fault_of_a_control_plane() {
    each(Host::Plane, Fault::of_planes(), Rate::per_second(2));
}
