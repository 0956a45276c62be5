//! The server's health, and the service that changes it.

use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::proto::Empty;
use crate::proto::xds_update_health_service_server::XdsUpdateHealthService;

const NAMES: [&str; 2] = ["", "grpc.testing.TestService"];

pub(super) struct HealthSwitch {
    reporter: HealthReporter,
}

impl HealthSwitch {
    /// Starts as serving.
    pub(super) async fn new(reporter: HealthReporter) -> Self {
        let switch = Self { reporter };
        switch.set(ServingStatus::Serving).await;
        switch
    }

    async fn set(&self, status: ServingStatus) {
        for name in NAMES {
            self.reporter.set_service_status(name, status).await;
        }
    }
}

#[tonic::async_trait]
impl XdsUpdateHealthService for HealthSwitch {
    async fn set_serving(&self, _request: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.set(ServingStatus::Serving).await;
        Ok(Response::new(Empty {}))
    }

    async fn set_not_serving(&self, _request: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.set(ServingStatus::NotServing).await;
        Ok(Response::new(Empty {}))
    }
}
