//! The mesh of the interactive demo: an aggregate of two clusters, the first of which has two localities.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use proxyless_admin::ControlRow;
use proxyless_testkit::envoy_types::pb::envoy::config::core::v3::HealthStatus;
use proxyless_testkit::envoy_types::pb::envoy::config::endpoint::v3::LocalityLbEndpoints;
use proxyless_testkit::resources::{
    EndpointExt as _, LocalityExt as _, aggregate_cluster, assignment, eds_cluster, endpoint, listener,
    locality, simple_route_config,
};
use proxyless_testkit::{Backend, ControlPlane, Resource};

use super::command::{Change, Command};
use crate::demo::mesh::{Condition, Group, Member};

/// The time that a slow backend takes to answer.
const SLOW: Duration = Duration::from_millis(300);

/// The localities of each cluster. Their first letters are the symbols of the timeline.
const CLUSTERS: [(&str, &[Group]); 2] = [
    ("shop-eu", &[Group { name: "berlin", size: 2 }, Group { name: "paris", size: 2 }]),
    ("shop-us", &[Group { name: "ohio", size: 2 }]),
];

pub(super) struct World {
    plane: ControlPlane,
    members: Vec<Member>,
    /// In the same order as `members`.
    backends: Vec<Backend>,
    weights: BTreeMap<&'static str, u32>,
    /// The clusters in order of preference.
    order: Vec<&'static str>,
}

impl World {
    pub(super) async fn start() -> io::Result<Self> {
        let plane = ControlPlane::start().await?;
        let (mut members, mut backends, mut weights) = (Vec::new(), Vec::new(), BTreeMap::new());
        for &group in CLUSTERS.iter().flat_map(|(_, groups)| *groups) {
            weights.insert(group.name, 1);
            for number in 1..=group.size {
                let name = format!("{group}-{number}");
                backends.push(Backend::start(&name).await?);
                members.push(Member { name, group, condition: Condition::Up });
            }
        }
        let order = CLUSTERS.iter().map(|(cluster, _)| *cluster).collect();
        let world = Self { plane, members, backends, weights, order };
        world.plane.set_all(world.resources());
        Ok(world)
    }

    pub(super) fn bootstrap_json(&self) -> String {
        self.plane.bootstrap_json()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The addresses of the backends, with their names.
    pub(super) fn names(&self) -> Vec<(SocketAddr, String)> {
        self.backends.iter().map(|backend| (backend.address(), backend.name().to_owned())).collect()
    }

    /// The weight of a locality.
    pub(super) fn weight(&self, group: Group) -> u32 {
        self.weights.get(group.name).copied().unwrap_or(1)
    }

    pub(super) async fn apply(&mut self, command: &Command) -> io::Result<()> {
        match command {
            Command::Backend(change, name) => {
                let place = self.members.iter().position(|member| member.name == *name);
                let parts = place.and_then(|at| Some((self.members.get_mut(at)?, self.backends.get(at)?)));
                if let Some((member, backend)) = parts {
                    apply_to(*change, member, backend).await?;
                }
            }
            Command::Weight(name, weight) => {
                if let Some(known) = self.weights.get_mut(name.as_str()) {
                    *known = *weight;
                }
            }
            Command::Order => self.order.reverse(),
        }
        // Resources that did not change are the same bytes, which clients skip.
        self.plane.set_all(self.resources());
        Ok(())
    }

    /// The buttons of the live page.
    pub(super) fn rows(&self) -> Vec<ControlRow> {
        let button = |label: &str, command: Command| (label.to_owned(), command.to_string());
        let mut rows: Vec<_> = self
            .members
            .iter()
            .map(|member| {
                let change = |change: Change| {
                    button(&change.to_string(), Command::Backend(change, member.name.clone()))
                };
                let buttons = match member.condition {
                    Condition::Up => vec![change(Change::Kill), change(Change::Drain), change(Change::Slow)],
                    _ => vec![change(Change::Revive)],
                };
                let state = member.condition.trouble().unwrap_or("up").to_owned();
                ControlRow { label: member.name.clone(), state, buttons }
            })
            .collect();
        for (name, weight) in &self.weights {
            let set = |label, weight| button(label, Command::Weight((*name).to_owned(), weight));
            let buttons = vec![set("+", (weight + 1).min(100)), set("−", weight.saturating_sub(1).max(1))];
            rows.push(ControlRow { label: (*name).to_owned(), state: format!("weight {weight}"), buttons });
        }
        let state = self.order.join(", then ");
        rows.push(ControlRow {
            label: "order".to_owned(),
            state,
            buttons: vec![button("swap", Command::Order)],
        });
        rows
    }

    fn resources(&self) -> Vec<Resource> {
        let mut resources = vec![
            listener("shop", "shop-route").into(),
            simple_route_config("shop-route", "shop").into(),
            aggregate_cluster("shop", self.order.iter().copied()).into(),
        ];
        for (cluster, groups) in CLUSTERS {
            resources.push(eds_cluster(cluster).into());
            resources.push(assignment(cluster, groups.iter().map(|group| self.locality(*group))).into());
        }
        resources
    }

    fn locality(&self, group: Group) -> LocalityLbEndpoints {
        let pairs = self.members.iter().zip(&self.backends).filter(|(member, _)| member.group == group);
        let endpoints = pairs.map(|(member, backend)| match member.condition {
            Condition::Draining => endpoint(backend).health(HealthStatus::Draining),
            _ => endpoint(backend),
        });
        locality(group.name, endpoints).weight(self.weight(group))
    }
}

async fn apply_to(change: Change, member: &mut Member, backend: &Backend) -> io::Result<()> {
    match (change, member.condition) {
        (Change::Kill, Condition::Down) => return Ok(()),
        (Change::Kill, _) => {
            backend.kill().await;
            member.condition = Condition::Down;
        }
        (Change::Revive, condition) => {
            if condition == Condition::Down {
                backend.restart().await?;
            }
            backend.delay(Duration::ZERO);
            member.condition = Condition::Up;
        }
        // A backend that is down can only be revived.
        (_, Condition::Down) => {}
        (Change::Drain, _) => member.condition = Condition::Draining,
        (Change::Slow, _) => {
            backend.delay(SLOW);
            member.condition = Condition::Slow;
        }
    }
    Ok(())
}
