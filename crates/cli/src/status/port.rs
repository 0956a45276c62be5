//! Communication with an admin port, with clear errors if it is not one.

use std::error::Error;
use std::time::Duration;

use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest};
use http::Request;
use http_body_util::BodyExt as _;
use proxyless::inspect::{ChannelView, ProcessView};
use proxyless_admin::HistoryView;
use serde::de::DeserializeOwned;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::ServiceExt as _;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the admin port of a process, over gRPC and HTTP.
pub(crate) struct Port {
    address: String,
    channel: Channel,
}

/// Whether resources are included with their contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Shown,
    Left,
}

impl Port {
    pub(crate) fn new(address: &str) -> Result<Self, Box<dyn Error>> {
        let name = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        if !name.contains(':') {
            return Err(format!("{address}: an address has a port, such as 127.0.0.1:19000").into());
        }
        let endpoint =
            Endpoint::from_shared(format!("http://{name}")).map_err(|error| format!("{address}: {error}"))?;
        let channel = endpoint.timeout(TIMEOUT).connect_timeout(TIMEOUT).connect_lazy();
        Ok(Self { address: name.to_owned(), channel })
    }

    /// The xDS clients and their resources, from CSDS.
    pub(crate) async fn clients(&self, contents: Contents) -> Result<Vec<ClientConfig>, Box<dyn Error>> {
        let csds = ClientStatusDiscoveryServiceClient::new(self.channel.clone());
        let request = ClientStatusRequest {
            exclude_resource_contents: contents == Contents::Left,
            ..Default::default()
        };
        // Meshes exceed the default limit, which protects servers from unknown clients.
        let answer = csds.max_decoding_message_size(usize::MAX).fetch_client_status(request).await;
        Ok(answer.map_err(|status| self.explain(&status))?.into_inner().config)
    }

    /// The channels with their policy trees.
    pub(crate) async fn channels(&self) -> Result<Vec<ChannelView>, Box<dyn Error>> {
        self.json("channels.json").await
    }

    /// The process; `None` if it does not use proxyless.
    pub(crate) async fn process(&self) -> Option<ProcessView> {
        self.json("process.json").await.ok()
    }

    /// The last minutes of channels and clusters; `None` if the port does not have them.
    pub(crate) async fn history(&self) -> Option<HistoryView> {
        self.json("history.json?only=clusters").await.ok()
    }

    async fn json<T: DeserializeOwned>(&self, file: &str) -> Result<T, Box<dyn Error>> {
        let request = Request::get(format!("http://{}/proxyless/{file}", self.address)).body(Body::empty())?;
        let answer = self.channel.clone().oneshot(request).await;
        let answer = answer.map_err(|error| self.explain(&Status::from_error(error.into())))?;
        let json = answer.headers().get("content-type").is_some_and(|value| value == "application/json");
        if !answer.status().is_success() || !json {
            return Err(format!(
                "{} has no policy trees to show: it is not an admin port of proxyless",
                self.address
            )
            .into());
        }
        Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
    }

    fn explain(&self, status: &Status) -> String {
        let address = &self.address;
        let causes = causes(status);
        match status.code() {
            Code::Unimplemented => format!(
                "{address} is a gRPC server without admin services: nothing answers \
                 envoy.service.status.v3.ClientStatusDiscoveryService there"
            ),
            Code::Unavailable if causes.contains("onnect") => {
                format!("cannot connect to {address}: {causes}")
            }
            Code::DeadlineExceeded | Code::Cancelled => {
                format!("{address} did not answer within {TIMEOUT:?}")
            }
            _ => format!("{address} does not answer as an admin port: {causes}"),
        }
    }
}

/// An error with all its causes.
fn causes(error: &dyn Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = cause.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}
