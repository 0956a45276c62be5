//! The control plane and the backends of the demo.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use proxyless_testkit::tls::ServerTls;
use proxyless_testkit::{Backend, ControlPlane, LoadReport};
use tonic::Code;

use super::certificates::{Certificates, Handshakes, Presented};
use super::scenario::{Change, Scenario};

/// Backends that live and die together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) size: usize,
}

impl Group {
    /// Its symbol in a timeline.
    pub(super) fn letter(self) -> char {
        self.name.chars().next().unwrap_or('?')
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// The names of groups.
pub(super) fn names(groups: &[Group]) -> String {
    groups.iter().map(|group| group.name).collect::<Vec<_>>().join("+")
}

/// The properties of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) group: Group,
    pub(super) condition: Condition,
}

/// The condition of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    Down,
    /// Up, but fails all RPCs.
    Failing,
    /// Up, but with the certificate of another service.
    WrongIdentity,
    /// Up, but the control plane sends it no new RPCs.
    Draining,
    /// Up, but takes its time.
    Slow,
}

impl Condition {
    /// The problem, if any.
    pub(super) fn trouble(self) -> Option<&'static str> {
        match self {
            Self::Up => None,
            Self::Down => Some("down"),
            Self::Failing => Some("failing"),
            Self::WrongIdentity => Some("wrong identity"),
            Self::Draining => Some("draining"),
            Self::Slow => Some("slow"),
        }
    }
}

pub(super) fn group_of(members: &[Member], backend: &str) -> Option<Group> {
    members.iter().find(|member| member.name == backend).map(|member| member.group)
}

pub(super) struct Mesh {
    control_plane: ControlPlane,
    members: Vec<Member>,
    /// In the same order as `members`.
    backends: Vec<Backend>,
    tls: Option<Tls>,
    /// The client's end of the last connection that was ended because of its certificate.
    ended: Option<SocketAddr>,
}

/// The TLS of a mesh.
struct Tls {
    certificates: Certificates,
    /// Those of the backends, in the same order.
    servers: Vec<ServerTls>,
}

impl Mesh {
    pub(super) async fn start(scenario: &Scenario) -> io::Result<Self> {
        let mut control_plane = ControlPlane::start().await?;
        let mut tls = None;
        if let Some(server_id) = scenario.server_id {
            let certificates = Certificates::new(server_id)?;
            let plane_tls = certificates.control_plane_tls(control_plane.address());
            control_plane = control_plane.with_tls(&plane_tls);
            tls = Some(Tls { certificates, servers: Vec::new() });
        }
        let mut mesh = Self { control_plane, members: Vec::new(), backends: Vec::new(), tls, ended: None };
        for group in scenario.groups.iter().copied() {
            for number in 1..=group.size {
                let name = if group.size == 1 { group.name.into() } else { format!("{group}-{number}") };
                let mut backend = Backend::start(&name).await?;
                if let Some(Tls { certificates, servers }) = &mut mesh.tls {
                    let tls = certificates.backend_tls();
                    backend = backend.with_tls(&tls);
                    servers.push(tls);
                }
                mesh.backends.push(backend);
                mesh.members.push(Member { name, group, condition: Condition::Up });
            }
        }
        mesh.control_plane.set_all((scenario.resources)(&mesh));
        Ok(mesh)
    }

    /// The bootstrap for clients of the control plane.
    pub(super) fn bootstrap_json(&self) -> String {
        match &self.tls {
            Some(tls) => tls.certificates.bootstrap_json(&self.control_plane),
            None => self.control_plane.bootstrap_json(),
        }
    }

    /// Ends the connection of one backend of these groups that has an old certificate of the client, and returns whether
    /// there was none. One after the other, as in a rolling restart, so that others take the RPCs meanwhile.
    pub(super) fn renew_connections(&mut self, groups: &[Group]) -> bool {
        let outdated = self.outdated(groups);
        let Some(backend) = outdated.first() else { return true };
        // A connection that has not had an RPC yet may not be established: its end would be a failed attempt to connect.
        let last = backend.calls().last().map(|call| call.peer());
        if last.is_some() && last != self.ended {
            backend.goaway();
            self.ended = last;
        }
        false
    }

    /// The handshakes of all backends, if the mesh has TLS. `groups` are those that were to get RPCs last.
    pub(super) fn handshakes(&self, groups: &[Group]) -> Option<Handshakes> {
        self.tls.as_ref().map(|_| Handshakes {
            connections: self.backends.iter().map(Backend::connections_accepted).sum(),
            refused: self.backends.iter().map(|backend| backend.handshake_errors().len()).sum(),
            outdated: self.outdated(groups).iter().map(|backend| backend.name().to_owned()).collect(),
        })
    }

    /// The backends of these groups whose last RPC did not come with the client's current certificate.
    fn outdated(&self, groups: &[Group]) -> Vec<&Backend> {
        let Some(tls) = &self.tls else { return Vec::new() };
        let all = groups.iter().flat_map(|group| self.of(*group));
        all.filter(|backend| !tls.certificates.are_current_at(backend)).collect()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The addresses of the backends, with their names.
    pub(super) fn names(&self) -> Vec<(SocketAddr, String)> {
        self.backends.iter().map(|backend| (backend.address(), backend.name().to_owned())).collect()
    }

    /// The backends of a group.
    pub(super) fn of(&self, group: Group) -> impl Iterator<Item = &Backend> {
        let pairs = self.members.iter().zip(&self.backends);
        pairs.filter(move |(member, _)| member.group == group).map(|(_, backend)| backend)
    }

    /// The load reports that the control plane has received so far.
    pub(super) fn load_reports(&self) -> Vec<Arc<LoadReport>> {
        self.control_plane.load_reports()
    }

    pub(super) async fn change(&mut self, change: &Change) -> io::Result<()> {
        match change {
            Change::Kill(group) => {
                for (member, backend) in self.of_mut(*group) {
                    backend.kill().await;
                    member.condition = Condition::Down;
                }
            }
            Change::Restart(group) => {
                for (member, backend) in self.of_mut(*group) {
                    backend.restart().await?;
                    member.condition = Condition::Up;
                }
            }
            Change::Fail(group) => {
                for (member, backend) in self.of_mut(*group) {
                    backend.fail_with(Code::Internal);
                    member.condition = Condition::Failing;
                }
            }
            Change::Recover(group) => {
                for (member, backend) in self.of_mut(*group) {
                    backend.succeed();
                    member.condition = Condition::Up;
                }
            }
            Change::RotateCertificates => {
                let Some(tls) = &mut self.tls else { return Err(no_tls()) };
                tls.certificates.rotate_client()?;
                for server in &tls.servers {
                    server.set_identity(&tls.certificates.issue(Presented::Own));
                }
            }
            Change::Impersonate(group) => {
                self.present(*group, Presented::Foreign, Condition::WrongIdentity)?;
            }
            Change::Identify(group) => self.present(*group, Presented::Own, Condition::Up)?,
            Change::Set(resources) => self.control_plane.set_all(resources(self)),
        }
        Ok(())
    }

    fn of_mut(&mut self, group: Group) -> impl Iterator<Item = (&mut Member, &Backend)> {
        self.members.iter_mut().zip(&self.backends).filter(move |(member, _)| member.group == group)
    }

    /// The backends of a group get other certificates, and end their connections.
    fn present(&mut self, group: Group, presented: Presented, condition: Condition) -> io::Result<()> {
        let Some(Tls { certificates, servers }) = &self.tls else { return Err(no_tls()) };
        for ((member, backend), server) in self.members.iter_mut().zip(&self.backends).zip(servers) {
            if member.group == group {
                server.set_identity(&certificates.issue(presented));
                backend.goaway();
                member.condition = condition;
            }
        }
        Ok(())
    }
}

fn no_tls() -> io::Error {
    io::Error::other("the scenario has no TLS, but changes certificates")
}
