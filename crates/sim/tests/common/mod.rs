//! A world with one channel, for scenarios.
#![allow(dead_code)] // each test file uses some of it

use std::time::Duration;

use proxyless_sim::Behaviour;
use proxyless_sim::Violation;
use proxyless_sim::script::config::{Assignment, Cluster, Listener, Mesh, Route, backend, route};
use proxyless_sim::script::{Action, CallSpec, Change, Script, ServerHabits, Settings};
use proxyless_sim::world::{Outcome, World};

pub(crate) type Result<T = ()> = std::result::Result<T, Violation>;

/// The path of RPCs by default.
pub(crate) const PATH: &str = "/a/m";

/// The cluster c0 with these backends by priority, and a route to it.
pub(crate) fn one_cluster(priorities: &[&[u8]]) -> Mesh {
    let mut mesh = Mesh::default();
    mesh.listeners.insert("l0".into(), Listener::Rds("r0".into()));
    mesh.routes.insert("r0".into(), vec![route("/a/", "c0")]);
    add_cluster(&mut mesh, 0, priorities);
    mesh
}

/// The cluster c<i> with the assignment e<i>.
pub(crate) fn add_cluster(mesh: &mut Mesh, i: usize, priorities: &[&[u8]]) {
    mesh.clusters.insert(format!("c{i}"), Cluster::eds(&format!("e{i}")));
    mesh.assignments.insert(format!("e{i}"), Assignment::of(priorities));
}

/// A world of a mesh, with gRFC A99.
pub(crate) fn world(mesh: Mesh) -> World {
    world_of_seed(mesh, 1)
}

pub(crate) fn world_of_seed(mesh: Mesh, seed: u64) -> World {
    world_with(mesh, seed, ServerHabits::default())
}

/// A world of a mesh whose control plane has these habits.
pub(crate) fn world_with(mesh: Mesh, seed: u64, server: ServerHabits) -> World {
    let settings = Settings { aggregate_resources: true, server, ..Settings::default() };
    World::new(&Script { seed, settings, mesh, steps: Vec::new() })
}

/// A world whose channels go IDLE.
pub(crate) fn idle_world(mesh: Mesh, seed: u64, timeout: Duration) -> World {
    let settings = Settings { idle_timeout: Some(timeout), ..Settings::default() };
    World::new(&Script { seed, settings, mesh, steps: Vec::new() })
}

/// The actions and observations of scenarios.
pub(crate) trait Scenario {
    fn start(&mut self) -> Result;
    fn behave(&mut self, n: u8, behaviour: Behaviour) -> Result;
    fn set(&mut self, change: Change) -> Result;
    fn set_routes(&mut self, routes: Vec<Route>) -> Result;
    fn call(&mut self, takes: Duration) -> Result;
    /// One RPC on channel 0.
    fn rpc(&mut self) -> Result<Outcome>;
    /// Runs for a time with an RPC every 20 ms, each of which must reach one of these backends; returns those reached.
    fn serves(&mut self, span: Duration, allowed: &[u8]) -> Result<Vec<u8>>;
    fn run_secs(&mut self, secs: f64) -> Result;
}

impl Scenario for World {
    fn start(&mut self) -> Result {
        self.act(Action::Start(0))
    }

    fn behave(&mut self, n: u8, behaviour: Behaviour) -> Result {
        self.act(Action::Backend(backend(n), behaviour))
    }

    fn set(&mut self, change: Change) -> Result {
        self.act(Action::Set(change))
    }

    fn set_routes(&mut self, routes: Vec<Route>) -> Result {
        self.set(Change::Routes("r0".into(), routes))
    }

    fn call(&mut self, takes: Duration) -> Result {
        self.act(Action::Call(CallSpec {
            channel: 0,
            path: PATH.into(),
            takes,
            wait_for_ready: false,
            session: None,
            gives_up: false,
        }))
    }

    fn rpc(&mut self) -> Result<Outcome> {
        Ok(self.probe(0, PATH)?.1)
    }

    fn serves(&mut self, span: Duration, allowed: &[u8]) -> Result<Vec<u8>> {
        let end = self.now() + span;
        let mut reached = Vec::new();
        while self.now() < end {
            let outcome = self.rpc()?;
            let found = allowed.iter().copied().find(|&n| outcome == Outcome::Reached(backend(n)));
            let n = found.ok_or_else(|| {
                Violation::new("served without a gap", format!("{:?}: {outcome:?}", self.now()))
            })?;
            if !reached.contains(&n) {
                reached.push(n);
            }
            self.run_for(Duration::from_millis(20))?;
        }
        Ok(reached)
    }

    fn run_secs(&mut self, secs: f64) -> Result {
        self.run_for(Duration::from_secs_f64(secs))
    }
}

#[track_caller]
pub(crate) fn reached(outcome: &Outcome, n: u8) {
    assert_eq!(*outcome, Outcome::Reached(backend(n)));
}

#[track_caller]
pub(crate) fn failed(outcome: &Outcome, text: &str) {
    assert!(matches!(outcome, Outcome::Failed(why) if why.contains(text)), "{outcome:?}");
}
