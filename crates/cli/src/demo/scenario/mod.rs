//! The stories that the demo can tell. Each is a file of its own: a mesh, and phases that each do something to it and
//! expect RPCs to move. A new one is such a file and an entry in [`ScenarioName`].

mod failover;
mod outlier;
mod regions;
mod sessions;

use clap::ValueEnum;
use proxyless::Gates;
use proxyless_testkit::Resource;

use super::mesh::{Group, Mesh};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScenarioName {
    /// An aggregate of two EDS clusters and a DNS cluster: one dies after the other, they come back, they are reordered
    Failover,
    /// One cluster with two priorities: the near region dies and comes back
    Regions,
    /// Users with cookies: they stay on their hosts when those fall to a lower priority, and move when those die
    Sessions,
    /// One backend begins to fail, is ejected, recovers and comes back
    Outlier,
}

impl ScenarioName {
    pub(super) fn scenario(self) -> &'static Scenario {
        match self {
            Self::Failover => &failover::SCENARIO,
            Self::Regions => &regions::SCENARIO,
            Self::Sessions => &sessions::SCENARIO,
            Self::Outlier => &outlier::SCENARIO,
        }
    }
}

pub(super) struct Scenario {
    /// What the channel connects to.
    pub(super) target: &'static str,
    /// How long it takes, about, unless told.
    pub(super) seconds: u64,
    /// Opens the gates that it needs.
    pub(super) gates: fn(&mut Gates),
    pub(super) groups: &'static [Group],
    /// Whose load the control plane is told.
    pub(super) reported: &'static [Reported],
    /// What the control plane says at first.
    pub(super) resources: fn(&Mesh) -> Vec<Resource>,
    pub(super) phases: &'static [Phase],
}

/// A locality of a cluster that reports its load.
pub(super) struct Reported {
    pub(super) cluster: &'static str,
    /// Empty for a cluster without localities.
    pub(super) zone: &'static str,
    /// Whose answers are its load.
    pub(super) groups: &'static [Group],
}

pub(super) struct Phase {
    pub(super) title: &'static str,
    /// What happens when it begins.
    pub(super) acts: &'static [Act],
    /// Who answers all RPCs without a session in the end; each of them some.
    pub(super) expect: &'static [Group],
    /// Who may answer on the way there, besides whoever did before.
    pub(super) via: &'static [Group],
    /// Its part of the demo's time, relative to those of the other phases.
    pub(super) share: u32,
}

pub(super) enum Act {
    /// Something is done to the mesh.
    Mesh(Change),
    /// So many more users begin a session.
    LogIn(usize),
}

/// Something that is done to the mesh.
pub(super) enum Change {
    Kill(Group),
    Restart(Group),
    /// From now on they fail all RPCs.
    Fail(Group),
    Recover(Group),
    /// The control plane says something new.
    Set(fn(&Mesh) -> Vec<Resource>),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scenarios_are_sound() {
        for name in ScenarioName::value_variants() {
            let Scenario { target, seconds, groups, reported, phases, .. } = name.scenario();
            assert!(target.starts_with("xds:///"), "{name:?}");
            assert!((1..=20).contains(seconds), "{name:?}");
            // The timeline shows first letters.
            let letters: BTreeSet<_> = groups.iter().map(|group| group.letter()).collect();
            assert_eq!(letters.len(), groups.len(), "{name:?}");
            // Every answer is in exactly one place.
            let counted: Vec<_> = reported.iter().flat_map(|of| of.groups).collect();
            assert!(groups.iter().all(|group| counted.iter().filter(|of| **of == group).count() == 1));
            assert!(phases.len() > 1, "{name:?}");
            for phase in *phases {
                assert!(phase.share > 0 && !phase.expect.is_empty(), "{}", phase.title);
                assert!(phase.title.len() <= 40, "{} is too long for the summary", phase.title);
                assert!(phase.via.iter().chain(phase.expect).all(|group| groups.contains(group)));
            }
            // A phase that expects what is already so would show nothing.
            assert!(phases.windows(2).all(|two| two[0].expect != two[1].expect), "{name:?}");
        }
    }
}
