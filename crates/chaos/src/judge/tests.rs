//! The rules, on made-up runs: each can fail.

use super::*;
use crate::config::{Config, Effect};
use crate::faults::{FaultKind, Target};
use crate::history::History;
use crate::topology::{BACKENDS, EDS_CLUSTERS};
use crate::wire::{Kind, Rpc, Type, Usage};

const UNAVAILABLE: u8 = 14;
const DEADLINE_EXCEEDED: u8 = 4;

/// The records of a run without events. Backend n has port 1000 + n.
fn notes() -> Notes {
    let mut addresses = [std::net::SocketAddr::from(([127, 0, 0, 1], 0)); BACKENDS];
    (0..).zip(&mut addresses).for_each(|(number, address)| address.set_port(1000 + number));
    let mut history = History::new();
    Config::new(addresses).effects().iter().for_each(|effect| history.record(0, 1, effect));
    [Type::Routes, Type::Cluster, Type::Endpoints].into_iter().for_each(|of| history.acked(of, 1, 1));
    Notes {
        began: 0,
        addresses,
        plane_port: 999,
        history,
        faults: Vec::new(),
        rejected: Vec::new(),
        rpcs: Vec::new(),
        late: Vec::new(),
        baseline: Some(Usage::default()),
        samples: Vec::new(),
        idle: Some(Usage::default()),
        end: Some(Usage::default()),
        problems: Vec::new(),
        failed: 0,
    }
}

fn fault(kind: FaultKind, backend: usize, start: Micros, end: Micros) -> Fault {
    Fault { kind, target: Target::Backend(backend), start: start * SECOND, end: end * SECOND }
}

/// An RPC of the session channel, whose cluster has b0, b5, b7 and b9.
fn rpc(code: u8, backend: Option<u8>, start: Micros, end: Micros) -> Rpc {
    Rpc {
        channel: 3,
        kind: Kind::Unary,
        start: start * SECOND,
        end: end * SECOND,
        code,
        port: backend.map(|backend| 1000 + u16::from(backend)),
        backend: backend.filter(|_| code == 0),
        pinned: None,
        message: None,
    }
}

fn rules(notes: &Notes) -> Vec<&'static str> {
    let plan = Plan { lasts: std::time::Duration::from_secs(1), seed: 0, updates: 0 };
    judge(notes, plan).violations.iter().map(|violation| violation.rule).collect()
}

const UNEXPLAINED: [&str; 1] = ["unexplained failure"];

#[test]
fn a_lost_rpc_needs_a_fault_of_its_backend_at_its_time() {
    let mut notes = notes();
    notes.rpcs = vec![rpc(UNAVAILABLE, Some(0), 20, 20)];
    assert_eq!(rules(&notes), UNEXPLAINED);
    notes.faults = vec![fault(FaultKind::Kill, 5, 20, 20), fault(FaultKind::Kill, 0, 10, 12)];
    assert_eq!(rules(&notes), UNEXPLAINED, "a different backend or time");
    notes.faults = vec![fault(FaultKind::Drain, 0, 20, 20), fault(FaultKind::Stop, 0, 19, 21)];
    assert_eq!(rules(&notes), UNEXPLAINED, "faults that lose nothing");
    notes.rpcs[0].message = Some("GOAWAY with ENHANCE_YOUR_CALM".into());
    assert_eq!(rules(&notes), [""; 0], "it was stopped, and then received the cancelled requests");
    notes.faults = vec![fault(FaultKind::Drain, 0, 20, 20)];
    assert_eq!(rules(&notes), UNEXPLAINED);
    notes.rpcs[0].message = None;
    notes.faults = vec![fault(FaultKind::Kill, 0, 20, 22)];
    assert_eq!(rules(&notes), [""; 0]);
    notes.rpcs[0].code = 13;
    assert_eq!(rules(&notes), UNEXPLAINED, "INTERNAL is never right");
}

#[test]
fn a_late_rpc_needs_a_stall_of_half_its_deadline() {
    let mut notes = notes();
    notes.rpcs = vec![rpc(DEADLINE_EXCEEDED, Some(0), 20, 23)];
    notes.faults = vec![fault(FaultKind::Stop, 0, 22, 23)];
    assert_eq!(rules(&notes), UNEXPLAINED);
    notes.faults = vec![fault(FaultKind::Stop, 0, 21, 25)];
    assert_eq!(rules(&notes), [""; 0]);
    notes.faults = vec![fault(FaultKind::Stop, 5, 21, 25)];
    assert_eq!(rules(&notes), UNEXPLAINED, "it was not sent to a different backend first");
    notes.faults = vec![fault(FaultKind::Stop, 5, 19, 21)];
    assert_eq!(rules(&notes), UNEXPLAINED, "two seconds were left");
    notes.faults = vec![fault(FaultKind::Stop, 5, 19, 22)];
    assert_eq!(rules(&notes), [""; 0], "it was refused and retried");
}

#[test]
fn an_unsent_rpc_must_not_fail_while_any_endpoint_is_in_order() {
    let mut notes = notes();
    notes.rpcs = vec![rpc(UNAVAILABLE, None, 20, 20)];
    notes.faults = [0, 5, 7].map(|backend| fault(FaultKind::Kill, backend, 18, 22)).into();
    assert_eq!(rules(&notes), UNEXPLAINED);
    notes.faults.push(fault(FaultKind::Kill, 9, 17, 19));
    assert_eq!(rules(&notes), [""; 0], "the last one may still be in backoff");
    notes.rpcs[0].start = 30 * SECOND;
    notes.rpcs[0].end = 30 * SECOND;
    assert_eq!(rules(&notes), UNEXPLAINED, "all recovered long ago");
    notes.history.record(25 * SECOND, 2, &Effect::Listed(4, 0));
    assert_eq!(rules(&notes), [""; 0], "no endpoint is listed");
}

#[test]
fn only_a_client_that_has_nothing_yet_may_fail_for_the_control_plane() {
    let mut notes = notes();
    notes.faults.push(Fault { target: Target::ControlPlane, ..fault(FaultKind::Kill, 0, 19, 21) });
    notes.history.acked(Type::Endpoints, 2, 22 * SECOND);
    notes.rejected = vec![(39 * SECOND, 41 * SECOND)];
    let message = Some("rejected version 2".into());
    for (channel, expected) in [(4, &["unexplained failure"; 2][..]), (5, &[])] {
        let of = |at| Rpc { channel, message: message.clone(), ..rpc(UNAVAILABLE, None, at, at) };
        notes.rpcs = vec![of(20), of(40)];
        assert_eq!(rules(&notes), expected, "channel {channel}");
    }
    notes.rpcs.iter_mut().for_each(|rpc| rpc.end += 20 * SECOND);
    notes.rpcs.iter_mut().for_each(|rpc| rpc.start += 20 * SECOND);
    notes.rejected.clear();
    assert_eq!(rules(&notes).len(), 2);
}

#[test]
fn retries_need_a_fault_for_each_attempt() {
    let mut notes = notes();
    notes.rpcs = vec![Rpc { channel: 0, ..rpc(UNAVAILABLE, Some(0), 20, 20) }];
    notes.faults = vec![fault(FaultKind::Kill, 0, 20, 21)];
    assert_eq!(rules(&notes), UNEXPLAINED);
    notes.faults = [0, 1, 2, 3, 4].map(|backend| fault(FaultKind::Kill, backend, 20, 21)).into();
    assert_eq!(rules(&notes), [""; 0]);
}

#[test]
fn rpcs_go_to_listed_backends_and_sessions_stay() {
    let mut notes = notes();
    notes.rpcs = vec![rpc(0, Some(1), 20, 20)];
    assert_eq!(rules(&notes), ["sent to a wrong backend"]);
    notes.rpcs = vec![rpc(0, Some(9), 20, 20)];
    assert_eq!(rules(&notes), [""; 0]);
    let sticky = EDS_CLUSTERS.iter().position(|cluster| cluster.name == "sticky").unwrap();
    notes.history.record(10 * SECOND, 2, &Effect::Listed(sticky, 1));
    assert_eq!(rules(&notes), [""; 0], "the client has not accepted that");
    notes.history.acked(Type::Endpoints, 2, 11 * SECOND);
    assert_eq!(rules(&notes), ["sent to a wrong backend"]);
    notes.rpcs = vec![Rpc { pinned: Some(5), ..rpc(0, Some(0), 8, 8) }];
    assert_eq!(rules(&notes), ["session broken"]);
    notes.faults = vec![fault(FaultKind::Kill, 5, 7, 7)];
    assert_eq!(rules(&notes), [""; 0]);
}

#[test]
fn an_endpoint_in_order_must_be_used_and_the_control_plane_too() {
    let mut notes = notes();
    notes.rpcs = (0..500).map(|_| rpc(0, Some(0), 20, 20)).collect();
    assert_eq!(rules(&notes), ["endpoint not used"; 3]);
    notes.faults = [5, 7, 9].map(|backend| fault(FaultKind::Stop, backend, 15, 19)).into();
    assert_eq!(rules(&notes), [""; 0]);
    notes.rpcs.push(rpc(0, Some(5), 60, 60));
    notes.faults.push(Fault { target: Target::ControlPlane, ..fault(FaultKind::Kill, 0, 30, 32) });
    assert_eq!(rules(&notes), ["control plane not used"]);
    notes.history.acked(Type::Endpoints, 2, 33 * SECOND);
    assert_eq!(rules(&notes), [""; 0]);
}

#[test]
fn what_stays_behind_is_a_leak() {
    let mut notes = notes();
    notes.idle = Some(Usage { connections: vec![1000, 1000, 999], ..Usage::default() });
    assert_eq!(rules(&notes), [""; 0], "two channels use b0");
    notes.idle = Some(Usage { connections: vec![1000, 1000, 1000, 999, 999, 1], ..Usage::default() });
    assert_eq!(rules(&notes), ["leak"; 3]);
    notes.idle = Some(Usage::default());
    notes.end = Some(Usage { tasks: 1, threads: 2, fds: 3, ..Usage::default() });
    assert_eq!(rules(&notes), ["leak"; 3]);
    notes.end = Some(Usage::default());
    let sample = |second: u64| Usage { at: second * SECOND, rss_kib: second * 1024, ..Usage::default() };
    notes.samples = (0..100).map(sample).collect();
    assert_eq!(rules(&notes), ["leak"]);
}

#[test]
fn a61_a_pass_over_the_addresses_of_dns_may_end_after_an_address_has_recovered() {
    let mut notes = notes();
    // b8 fails early in the pass and recovers, b9 is stopped.
    notes.faults = vec![fault(FaultKind::Kill, 8, 10, 11), fault(FaultKind::Stop, 9, 9, 90)];
    let unsent = |at| Rpc { channel: 2, ..rpc(UNAVAILABLE, None, at, at) };
    notes.rpcs = vec![unsent(28)];
    assert_eq!(rules(&notes), [""; 0]);
    notes.rpcs = vec![unsent(80)];
    assert_eq!(rules(&notes), UNEXPLAINED, "no pass takes so long");
    notes.faults = vec![fault(FaultKind::Kill, 8, 10, 11), fault(FaultKind::Kill, 9, 9, 90)];
    notes.rpcs = vec![unsent(28)];
    assert_eq!(rules(&notes), UNEXPLAINED, "a refused attempt takes no time");
    notes.faults = vec![fault(FaultKind::Stop, 9, 9, 90)];
    assert_eq!(rules(&notes), UNEXPLAINED, "b8 was healthy all the time");
}
