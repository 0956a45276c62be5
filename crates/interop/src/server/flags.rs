//! The command line of the server.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser, ValueEnum};

use crate::flags::OnlyFalse;

/// Serves grpc.testing.TestService, and health services for its manager.
#[derive(Clone, Debug, Parser)]
#[command(name = "xds-interop-server", version, rename_all = "snake_case")]
pub struct ServerFlags {
    /// Port of TestService
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Port of the health services; --port by default
    #[arg(long)]
    pub maintenance_port: Option<u16>,
    /// The server's id in responses
    #[arg(long, default_value = "rust_server")]
    pub server_id: String,
    /// The host name in responses and their metadata; the machine's by default
    #[arg(long)]
    pub hostname: Option<String>,
    /// The addresses to bind
    #[arg(long, value_enum, ignore_case = true, default_value_t = AddressType::Ipv4Ipv6)]
    pub address_type: AddressType,
    /// Serve TestService with TLS, by the certificates of the bootstrap or of the flags below; --maintenance_port stays
    /// plaintext
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1,
        action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    pub secure_mode: bool,
    /// The certificate provider instance of the bootstrap to use; by default the only one with a certificate
    #[arg(long)]
    pub certificate_provider: Option<String>,
    /// The server's certificate chain as PEM, instead of a certificate provider instance
    #[arg(long)]
    pub certificate_file: Option<PathBuf>,
    /// The private key of --certificate_file as PEM
    #[arg(long)]
    pub private_key_file: Option<PathBuf>,
    /// The authorities of clients as PEM, beside --certificate_file: clients then need a certificate
    #[arg(long)]
    pub ca_certificate_file: Option<PathBuf>,
    /// The load reporting mode; only NONE is supported
    #[arg(long, value_enum, ignore_case = true, default_value_t = MetricsMode::None)]
    pub metrics_mode: MetricsMode,
    /// Use CSM observability (not supported)
    #[arg(long, alias = "enable-csm-observability", default_value = "false", default_missing_value = "true",
        num_args = 0..=1, action = ArgAction::Set, value_parser = OnlyFalse)]
    pub enable_csm_observability: bool,
}

impl ServerFlags {
    pub(super) fn hostname(&self) -> String {
        let machine = || {
            let name = std::env::var("HOSTNAME").ok();
            name.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        };
        self.hostname
            .clone()
            .or_else(machine)
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| self.server_id.clone())
    }
}

/// The addresses that a server binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum AddressType {
    /// All IPv4 addresses.
    #[value(name = "IPV4")]
    Ipv4,
    /// All IPv6 addresses.
    #[value(name = "IPV6")]
    Ipv6,
    /// All addresses of both families; IPv4 alone if the machine has no IPv6.
    #[value(name = "IPV4_IPV6")]
    Ipv4Ipv6,
}

/// The load reporting modes of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum MetricsMode {
    /// No reports.
    #[value(name = "NONE")]
    None,
}
