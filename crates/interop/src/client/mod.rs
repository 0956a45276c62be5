//! The client: open-loop traffic over channels of any kind, and the services by which tests read and configure it.

mod flags;
mod plan;
mod rpc;
mod services;
mod stats;
#[cfg(test)]
mod tests;
mod traffic;

use std::sync::Arc;

use tokio::sync::watch;
use tonic::service::Routes;

pub use flags::ClientFlags;
pub use plan::{BadPlan, Method};
pub use rpc::{Channel, Outcome};
pub use traffic::FailedRpc;

use crate::proto::load_balancer_stats_service_server::LoadBalancerStatsServiceServer;
use crate::proto::xds_update_client_configure_service_server::XdsUpdateClientConfigureServiceServer;
use plan::Plan;
use services::{ConfigureService, StatsService};
use stats::Stats;
use traffic::Traffic;

/// Called for every RPC that ends, with its number, its method and its outcome.
pub type Observer = Arc<dyn Fn(u64, Method, &Outcome) + Send + Sync>;

/// An interop client that has not started to send yet.
#[derive(Debug)]
pub struct Client {
    flags: ClientFlags,
    plan: Arc<watch::Sender<Plan>>,
    stats: Arc<Stats>,
}

impl Client {
    /// Creates a client with these flags.
    ///
    /// # Errors
    /// If the RPC types or the metadata among the flags are invalid.
    pub fn new(flags: ClientFlags) -> Result<Self, BadPlan> {
        let plan = Plan::from_flags(&flags)?;
        Ok(Self { flags, plan: Arc::new(watch::Sender::new(plan)), stats: Arc::default() })
    }

    /// The services of the statistics port.
    pub fn routes(&self) -> Routes {
        let stats = StatsService::new(self.stats.clone());
        let configure = ConfigureService::new(self.plan.clone(), self.flags.timeout());
        Routes::new(LoadBalancerStatsServiceServer::new(stats))
            .add_service(XdsUpdateClientConfigureServiceServer::new(configure))
    }

    /// Sends RPCs on each of these channels. Ends only when an RPC fails although none may.
    pub async fn drive<T: Channel>(&self, channels: Vec<T>, observer: Observer) -> FailedRpc {
        let traffic = Traffic {
            plan: self.plan.clone(),
            stats: self.stats.clone(),
            period: self.flags.period(),
            payload: self.flags.payload(),
            tolerance: self.flags.tolerance(),
            observer,
        };
        traffic.run(channels).await
    }
}
