//! The control plane and the backends of the demo.

use std::sync::Arc;
use std::{fmt, io};

use proxyless_testkit::{Backend, ControlPlane, LoadReport};
use tonic::Code;

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
}

impl Condition {
    /// The problem, if any.
    pub(super) fn trouble(self) -> Option<&'static str> {
        match self {
            Self::Up => None,
            Self::Down => Some("down"),
            Self::Failing => Some("failing"),
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
}

impl Mesh {
    pub(super) async fn start(scenario: &Scenario) -> io::Result<Self> {
        let control_plane = ControlPlane::start().await?;
        let mut mesh = Self { control_plane, members: Vec::new(), backends: Vec::new() };
        for group in scenario.groups.iter().copied() {
            for number in 1..=group.size {
                let name = if group.size == 1 { group.name.into() } else { format!("{group}-{number}") };
                mesh.backends.push(Backend::start(&name).await?);
                mesh.members.push(Member { name, group, condition: Condition::Up });
            }
        }
        mesh.control_plane.set_all((scenario.resources)(&mesh));
        Ok(mesh)
    }

    /// The bootstrap for clients of the control plane.
    pub(super) fn bootstrap_json(&self) -> String {
        self.control_plane.bootstrap_json()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
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
            Change::Set(resources) => self.control_plane.set_all(resources(self)),
        }
        Ok(())
    }

    fn of_mut(&mut self, group: Group) -> impl Iterator<Item = (&mut Member, &Backend)> {
        self.members.iter_mut().zip(&self.backends).filter(move |(member, _)| member.group == group)
    }
}
