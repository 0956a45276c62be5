//! The services of the statistics port.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::plan::Plan;
use super::stats::Stats;
use crate::proto::load_balancer_stats_service_server::LoadBalancerStatsService;
use crate::proto::xds_update_client_configure_service_server::XdsUpdateClientConfigureService;
use crate::proto::{
    ClientConfigureRequest, ClientConfigureResponse, LoadBalancerAccumulatedStatsRequest,
    LoadBalancerAccumulatedStatsResponse, LoadBalancerStatsRequest, LoadBalancerStatsResponse,
};

/// Reports the outcomes of RPCs.
#[derive(Debug)]
pub(super) struct StatsService {
    stats: Arc<Stats>,
}

impl StatsService {
    pub(super) fn new(stats: Arc<Stats>) -> Self {
        Self { stats }
    }
}

#[tonic::async_trait]
impl LoadBalancerStatsService for StatsService {
    async fn get_client_stats(
        &self,
        request: Request<LoadBalancerStatsRequest>,
    ) -> Result<Response<LoadBalancerStatsResponse>, Status> {
        let request = request.into_inner();
        let count = u64::try_from(request.num_rpcs)
            .map_err(|_| Status::invalid_argument("num_rpcs must not be negative"))?;
        let limit = Duration::from_secs(u64::try_from(request.timeout_sec).unwrap_or(0));
        let watch = self.stats.watch(count, request.metadata_keys);
        if count > 0 {
            // On timeout the caller gets partial results.
            let _ = tokio::time::timeout(limit, watch.complete()).await;
        }
        Ok(Response::new(watch.response()))
    }

    async fn get_client_accumulated_stats(
        &self,
        _request: Request<LoadBalancerAccumulatedStatsRequest>,
    ) -> Result<Response<LoadBalancerAccumulatedStatsResponse>, Status> {
        Ok(Response::new(self.stats.accumulated()))
    }
}

/// `XdsUpdateClientConfigureService`: replaces the plan of the RPCs to send.
#[derive(Debug)]
pub(super) struct ConfigureService {
    plan: Arc<watch::Sender<Plan>>,
    default_timeout: Duration,
}

impl ConfigureService {
    pub(super) fn new(plan: Arc<watch::Sender<Plan>>, default_timeout: Duration) -> Self {
        Self { plan, default_timeout }
    }
}

#[tonic::async_trait]
impl XdsUpdateClientConfigureService for ConfigureService {
    async fn configure(
        &self,
        request: Request<ClientConfigureRequest>,
    ) -> Result<Response<ClientConfigureResponse>, Status> {
        let plan = Plan::from_request(request.get_ref(), self.default_timeout)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.plan.send_replace(plan);
        Ok(Response::new(ClientConfigureResponse {}))
    }
}
