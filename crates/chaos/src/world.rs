//! The processes and links of a run, and their records.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use proxyless_sans_io::Rng;
use proxyless_testkit::{DeadAddress, dead_address};
use tokio::sync::{mpsc, oneshot};

use crate::child::Process;
use crate::clock::{Late, Micros, now};
use crate::config::{Config, Effect};
use crate::faults::{Fault, FaultKind, Target};
use crate::history::History;
use crate::link::Link;
use crate::network::Network;
use crate::topology::{BACKENDS, is_linked};
use crate::wire::{ClientEvent, Command, Item, PlaneEvent, Rpc, Usage};

/// The world, shared by its tasks. No task holds a borrow across an await.
pub(crate) type Shared = Rc<RefCell<World>>;

/// A line of a child; `None` is its end.
pub(crate) enum Said {
    Client(Option<String>),
    Plane(Option<String>),
}

pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) notes: Notes,
    pub(crate) client: Process,
    pub(crate) plane: Process,
    pub(crate) plane_link: Link,
    pub(crate) backends: Vec<Process>,
    pub(crate) links: Vec<Option<Link>>,
    /// The number of the last update.
    pub(crate) number: u64,
    /// The ports of the servers; they keep them while a process is dead.
    ports: Vec<SocketAddr>,
    _reserved: Vec<DeadAddress>,
    pub(crate) network: Option<Network>,
    said: mpsc::UnboundedSender<Said>,
}

/// The records of a run, for the judge.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) began: Micros,
    /// The addresses of the backends for clients.
    pub(crate) addresses: [SocketAddr; BACKENDS],
    pub(crate) plane_port: u16,
    pub(crate) history: History,
    pub(crate) faults: Vec<Fault>,
    /// The intervals in which there was a resource that clients must reject.
    pub(crate) rejected: Vec<(Micros, Micros)>,
    pub(crate) rpcs: Vec<Rpc>,
    pub(crate) late: Vec<Late>,
    pub(crate) baseline: Option<Usage>,
    pub(crate) samples: Vec<Usage>,
    pub(crate) idle: Option<Usage>,
    pub(crate) end: Option<Usage>,
    pub(crate) problems: Vec<String>,
    pub(crate) failed: u64,
}

impl World {
    /// Starts all processes, the client last.
    pub(crate) async fn start(
        seed: u64,
        network: Option<Network>,
        said: mpsc::UnboundedSender<Said>,
    ) -> io::Result<Self> {
        let mut rng = Rng::new(seed ^ 0x6c69_6e6b);
        let reserved = (0..=BACKENDS).map(|_| dead_address()).collect::<io::Result<Vec<_>>>()?;
        let ports: Vec<SocketAddr> = (0..)
            .zip(&reserved)
            .map(|(number, reserved)| match network {
                Some(_) if number < BACKENDS => Network::address_of_its_own(reserved.address(), number),
                _ => reserved.address(),
            })
            .collect();
        let mut backends = Vec::new();
        let mut links = Vec::new();
        let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); BACKENDS];
        for (number, port) in ports[..BACKENDS].iter().enumerate() {
            let (process, ready) = start_backend(number, *port)?;
            listening(ready).await?;
            backends.push(process);
            let link = match is_linked(number) {
                true => Some(Link::start(*port, rng.next_u64()).await?),
                false => None,
            };
            addresses[number] = link.as_ref().map_or_else(|| *port, Link::address);
            links.push(link);
        }
        let plane_address = ports[BACKENDS];
        let (config, mut history) = (Config::new(addresses), History::new());
        config.effects().iter().for_each(|effect| history.record(now(), 1, effect));
        let (plane, ready) = start_plane(plane_address, &config, 1, &said)?;
        listening(ready).await?;
        let plane_link = Link::start(plane_address, rng.next_u64()).await?;
        let (client, ready) = start_client(plane_link.address(), &addresses, seed, &said)?;
        listening(ready).await?;
        let notes = Notes {
            began: now(),
            addresses,
            plane_port: plane_link.address().port(),
            history,
            faults: Vec::new(),
            rejected: Vec::new(),
            rpcs: Vec::new(),
            late: Vec::new(),
            baseline: None,
            samples: Vec::new(),
            idle: None,
            end: None,
            problems: Vec::new(),
            failed: 0,
        };
        Ok(Self {
            config,
            notes,
            client,
            plane,
            plane_link,
            backends,
            links,
            number: 1,
            ports,
            _reserved: reserved,
            network,
            said,
        })
    }

    // -- configuration ------------------------------------------------------

    /// Restores the initial configuration.
    pub(crate) fn reset_config(&mut self) {
        self.config.reset();
        let (items, effects) = (self.config.all(), self.config.effects());
        self.update(items, &effects);
    }

    pub(crate) fn update(&mut self, items: Vec<Item>, effects: &[Effect]) {
        self.number += 1;
        let (number, at) = (self.number, now());
        effects.iter().for_each(|effect| self.notes.history.record(at, number, effect));
        self.notes.history.updates += 1;
        self.command(&Command::Update { number, items });
    }

    pub(crate) fn command(&self, command: &Command) {
        self.plane.tell(&serde_json::to_string(command).unwrap_or_default());
    }

    // -- processes ----------------------------------------------------------

    /// Restarts a backend on its port.
    pub(crate) fn restart_backend(&mut self, number: usize) -> io::Result<oneshot::Receiver<()>> {
        let (process, ready) = start_backend(number, self.ports[number])?;
        self.backends[number] = process;
        Ok(ready)
    }

    /// Restarts the control plane on its port with the current configuration.
    pub(crate) fn restart_plane(&mut self) -> io::Result<oneshot::Receiver<()>> {
        let address = self.ports[BACKENDS];
        let (process, ready) = start_plane(address, &self.config, self.number, &self.said)?;
        self.plane = process;
        Ok(ready)
    }

    // -- notes --------------------------------------------------------------

    /// Records the start of a fault; returns its index.
    pub(crate) fn begin(&mut self, kind: FaultKind, target: Target) -> usize {
        self.notes.faults.push(Fault { kind, target, start: now(), end: Micros::MAX });
        self.notes.faults.len() - 1
    }

    pub(crate) fn end(&mut self, fault: usize) {
        self.notes.faults[fault].end = now();
    }

    /// Whether a target has a fault now.
    pub(crate) fn is_hurt(&self, target: Target) -> bool {
        // Faults last for seconds: current ones are among the last.
        let recent = self.notes.faults.iter().rev().take(100);
        recent.clone().any(|fault| fault.target == target && fault.end == Micros::MAX)
    }

    /// The number of current faults.
    pub(crate) fn under_way(&self) -> usize {
        self.notes.faults.iter().rev().take(100).filter(|fault| fault.end == Micros::MAX).count()
    }
}

impl Notes {
    pub(crate) fn hear(&mut self, said: Said) {
        match said {
            Said::Client(Some(line)) => self.hear_client(&line),
            Said::Client(None) => self.problems.push("the client process has ended".into()),
            Said::Plane(Some(line)) => match serde_json::from_str(&line) {
                Ok(PlaneEvent::Ack { of, number, at }) => self.history.acked(of, number, at),
                Ok(PlaneEvent::Nack { .. }) => self.history.nacks += 1,
                Err(error) => {
                    self.problems.push(format!("invalid line of the control plane {line:?}: {error}"))
                }
            },
            // It may just have been killed.
            Said::Plane(None) => {}
        }
    }

    fn hear_client(&mut self, line: &str) {
        if let Some(rpc) = Rpc::from_line(line) {
            self.failed += u64::from(rpc.code != 0);
            self.rpcs.push(rpc);
            return;
        }
        match serde_json::from_str(line) {
            Ok(ClientEvent::Baseline(usage)) => self.baseline = Some(usage),
            Ok(ClientEvent::Sample(usage)) => self.samples.push(usage),
            Ok(ClientEvent::Idle(usage)) => self.idle = Some(usage),
            Ok(ClientEvent::End(usage)) => self.end = Some(usage),
            Ok(ClientEvent::Late { at, late }) => self.late.push(Late { at, late }),
            Ok(ClientEvent::Problem(problem)) => self.problems.push(problem),
            Err(error) => self.problems.push(format!("invalid line of the client {line:?}: {error}")),
        }
    }
}

/// Waits until a child listens.
pub(crate) async fn listening(ready: oneshot::Receiver<()>) -> io::Result<()> {
    ready.await.map_err(|_| io::Error::other("a child process ended before it was ready"))
}

fn start_backend(number: usize, address: SocketAddr) -> io::Result<(Process, oneshot::Receiver<()>)> {
    Process::start(&["backend".into(), format!("b{number}"), address.to_string()], |_| {})
}

fn start_plane(
    address: SocketAddr,
    config: &Config,
    number: u64,
    said: &mpsc::UnboundedSender<Said>,
) -> io::Result<(Process, oneshot::Receiver<()>)> {
    let said = said.clone();
    let (process, ready) = Process::start(&["control-plane".into(), address.to_string()], move |line| {
        // The receiver is gone at the very end.
        let _ = said.send(Said::Plane(line));
    })?;
    // It listens only once it has this: an incomplete list of clusters would delete the others.
    let first = Command::Update { number, items: config.all() };
    process.tell(&serde_json::to_string(&first).unwrap_or_default());
    Ok((process, ready))
}

fn start_client(
    plane: SocketAddr,
    backends: &[SocketAddr],
    seed: u64,
    said: &mpsc::UnboundedSender<Said>,
) -> io::Result<(Process, oneshot::Receiver<()>)> {
    let said = said.clone();
    let mut arguments = vec!["client".into(), seed.to_string(), plane.to_string()];
    arguments.extend(backends.iter().map(ToString::to_string));
    Process::start(&arguments, move |line| {
        let _ = said.send(Said::Client(line));
    })
}
