//! The Rust contestants: each creates a channel to a target.

mod bare_hyper;
mod tonic_channels;

pub(crate) use bare_hyper::BareHyper;
pub(crate) use tonic_channels::{balanced, single};

use clap::ValueEnum;

/// A way to reach the service from Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    /// Round robin over hyper's connections: the cost of HTTP/2 alone.
    BareHyper,
    /// One `tonic::transport::Channel` to one address.
    TonicChannel,
    /// `Channel::balance_list`.
    BalanceList,
    /// The crate tonic-xds.
    TonicXds,
    /// This project.
    Proxyless,
    /// This project, with the recorder of `/metrics`.
    WithMetrics,
    /// This project, with OpenTelemetry's metrics as they are by default.
    WithOtel,
    /// This project, with OpenTelemetry's traces of every call.
    WithTraces,
}
