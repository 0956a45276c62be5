//! The xds_wrr_locality policy (gRFC A52): turns the weights of localities, which are part of the endpoints,
//! into a configuration of weighted_target.

use std::sync::Arc;

use proxyless_balancer::api::{
    Below, ConfigError, Cx, Endpoints, Group, Layer, PolicyView, Update, config_of,
};
use proxyless_balancer::policies::weighted_target::{Target, WeightedTargetConfig};
use proxyless_sans_io::Time;

use super::config::{NAME, WrrLocalityConfig};
use crate::endpoints::Grouping;
use crate::targets;

/// The policy, which only translates configurations.
#[derive(Default)]
pub(super) struct WrrLocality {
    /// The endpoints of the last update, whose groups have the localities of the children.
    endpoints: Option<Endpoints>,
}

impl Layer for WrrLocality {
    fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
        let WrrLocalityConfig { child, grouping } = config_of(NAME, &update.config)?;
        let localities = update.endpoints.groups().len();
        tracing::debug!(target: targets::XDS_WRR_LOCALITY_LB, localities, "update");
        // A27-97: each locality's share is by its weight.
        let targets = update.endpoints.groups().iter().map(|group| {
            (Arc::clone(&group.name), Target { weight: group.weight, config: Arc::clone(child) })
        });
        let config = Arc::new(WeightedTargetConfig { targets: targets.collect() });
        self.endpoints = Some(update.endpoints.clone());
        let endpoints = match grouping {
            Grouping::Localities => nested(&update.endpoints),
            Grouping::Flat => update.endpoints.clone(),
        };
        below.update(&Update { config, endpoints, ..update.clone() }, self, cx)
    }

    /// Shows the localities instead of the children's names, which are unique but less readable.
    fn describe(&self, _: Time, node: &mut PolicyView) {
        let groups = self.endpoints.as_ref().map_or(&[][..], Endpoints::groups);
        for child in node.children.iter_mut().flat_map(|target| &mut target.node.children) {
            let group = groups.iter().find(|group| *group.name == *child.name);
            if let Some(locality) = group.and_then(|group| group.locality.as_ref()) {
                child.name = locality.to_string();
            }
        }
    }
}

/// A52-11: policies nest. The policy within a locality sees that locality, with its name and weight, as the only one.
fn nested(endpoints: &Endpoints) -> Endpoints {
    let around =
        |group: &Group| Group { endpoints: Endpoints::Groups([group.clone()].into()), ..group.clone() };
    Endpoints::Groups(endpoints.groups().iter().map(around).collect())
}
