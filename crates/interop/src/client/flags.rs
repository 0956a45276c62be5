//! The command line of the client.

use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser};
use proxyless::{Fallback, XdsCredentials};

use super::rpc::Payload;
use super::traffic::Tolerance;
use crate::flags::OnlyFalse;

/// Sends a steady stream of RPCs to an xDS target and reports their results.
#[derive(Clone, Debug, Parser)]
#[command(name = "xds-interop-client", version, rename_all = "snake_case")]
pub struct ClientFlags {
    /// The target, such as xds:///greeter
    #[arg(long)]
    pub server: String,
    /// Port of the statistics and configuration services
    #[arg(long, default_value_t = 50052)]
    pub stats_port: u16,
    /// Number of channels to create
    #[arg(long, default_value_t = 1)]
    pub num_channels: usize,
    /// RPCs per second, per channel and method
    #[arg(long, default_value = "1", value_parser = positive)]
    pub qps: f64,
    /// Methods to call: UnaryCall, EmptyCall, or both separated by a comma
    #[arg(long, default_value = "UnaryCall")]
    pub rpc: String,
    /// Request metadata: METHOD:KEY:VALUE, separated by commas
    #[arg(long, default_value = "")]
    pub metadata: String,
    /// Deadline of each RPC, in seconds
    #[arg(long, default_value = "20", value_parser = positive)]
    pub rpc_timeout_sec: f64,
    /// Exit with an error when an RPC fails after one has succeeded
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
        action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub fail_on_failed_rpcs: bool,
    /// Print each response
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
        action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub print_response: bool,
    /// Bytes of payload in each UnaryCall request
    #[arg(long, default_value_t = 0)]
    pub request_payload_size: u32,
    /// Bytes of payload to request in each UnaryCall response
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub response_payload_size: i32,
    /// Use xDS credentials with plaintext as fallback, instead of plaintext credentials
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
        action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub secure_mode: bool,
    /// Use CSM observability (not supported)
    #[arg(long, alias = "enable-csm-observability", default_value = "false", default_missing_value = "true",
        num_args = 0..=1, action = ArgAction::Set, value_parser = OnlyFalse)]
    pub enable_csm_observability: bool,
}

impl ClientFlags {
    /// The credentials of the channels.
    #[must_use]
    pub fn credentials(&self) -> XdsCredentials {
        if self.secure_mode { XdsCredentials::Xds(Fallback::Plaintext) } else { XdsCredentials::Plaintext }
    }

    pub(super) fn timeout(&self) -> Duration {
        // `positive` allows only values that fit.
        Duration::try_from_secs_f64(self.rpc_timeout_sec).unwrap_or(Duration::MAX)
    }

    pub(super) fn period(&self) -> Duration {
        Duration::try_from_secs_f64(1.0 / self.qps).unwrap_or(Duration::MAX)
    }

    pub(super) fn payload(&self) -> Payload {
        Payload { request: self.request_payload_size as usize, response: self.response_payload_size }
    }

    pub(super) fn tolerance(&self) -> Tolerance {
        if self.fail_on_failed_rpcs { Tolerance::UntilFirstSuccess } else { Tolerance::Always }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && Duration::try_from_secs_f64(value).is_ok() => Ok(value),
        Ok(_) => Err("must be a positive number".into()),
        Err(error) => Err(error.to_string()),
    }
}
