//! One management server: its address, credentials and features.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use super::credentials::{CallCreds, ChannelCreds, call_creds, channel_creds};
use super::json::{Place, Problems};
use super::options::BootstrapOptions;

/// The port that gRPC uses for names without one.
const DEFAULT_PORT: u16 = 443;

/// An entry of `xds_servers`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The URI as configured.
    pub uri: String,
    /// The address that the URI names.
    pub target: ServerTarget,
    /// The credentials of the connection.
    pub channel_creds: ChannelCreds,
    /// The credentials of every stream. They must not be sent without TLS.
    pub call_creds: Vec<CallCreds>,
    /// The features of the server.
    pub features: ServerFeatures,
}

/// The `server_features` that the client understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFeatures {
    /// `ignore_resource_deletion` (gRFC A53).
    pub ignore_resource_deletion: bool,
    /// `fail_on_data_errors` (gRFC A88).
    pub fail_on_data_errors: bool,
    /// `resource_timer_is_transient_error` (gRFC A88).
    pub resource_timer_is_transient_error: bool,
    /// `trusted_xds_server` (gRFC A81).
    pub trusted_xds_server: bool,
}

/// Where a management server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTarget {
    /// A name to resolve.
    Dns {
        /// The name.
        host: String,
        /// The port; 443 by default.
        port: u16,
    },
    /// Addresses to try in order; never empty.
    Addresses(Vec<SocketAddr>),
    /// A Unix domain socket.
    Unix(PathBuf),
}

impl ServerTarget {
    /// Parses a `server_uri`: `host:port`, `[::1]:443`, `dns:///host:port`, `ipv4:…`, `ipv6:…`, `unix:path` or
    /// `unix:///path`.
    ///
    /// # Errors
    ///
    /// Describes why the URI is invalid.
    pub fn parse(uri: &str) -> Result<Self, String> {
        let scheme_of = |scheme: &str| {
            let (head, rest) = uri.split_once(':')?;
            head.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        if let Some(rest) = scheme_of("unix") {
            let path = match rest.strip_prefix("//") {
                Some(path) if !path.starts_with('/') => {
                    return Err(format!("{uri:?} must have an absolute path behind unix://"));
                }
                path => path.unwrap_or(rest),
            };
            return match path {
                "" => Err(format!("{uri:?} has no path")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        if let Some(rest) = scheme_of("ipv4") {
            return addresses(uri, rest, |ip| ip.is_ipv4());
        }
        if let Some(rest) = scheme_of("ipv6") {
            return addresses(uri, rest, |ip| ip.is_ipv6());
        }
        if let Some(rest) = scheme_of("dns") {
            return host_port(uri, without_authority(uri, rest)?);
        }
        if let Some((scheme, _)) = uri.split_once("://") {
            return Err(format!(
                "{uri:?} has the scheme {scheme:?}; supported are host:port, dns, ipv4, ipv6 and unix"
            ));
        }
        host_port(uri, uri)
    }

    /// The `:authority` of requests to the server.
    #[must_use]
    pub fn authority(&self) -> String {
        match self {
            Self::Dns { host, port } => format!("{host}:{port}"),
            // The list is never empty.
            Self::Addresses(addresses) => addresses.first().map(ToString::to_string).unwrap_or_default(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl fmt::Display for ServerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { host, port } => write!(f, "dns:///{host}:{port}"),
            Self::Addresses(addresses) => {
                for (i, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses one entry of `xds_servers`.
pub(super) fn parse(
    entry: &Place<'_>,
    options: &BootstrapOptions,
    problems: &mut Problems,
) -> Option<ServerConfig> {
    entry.object(problems)?;
    // A27-15: `server_uri` is required.
    let uri = entry.required_string("server_uri", problems);
    let target = uri.and_then(|uri| match ServerTarget::parse(uri) {
        Ok(target) => Some(target),
        Err(reason) => problems.fail(&entry.path_of("server_uri"), reason),
    });
    let channel_creds = channel_creds(entry, options, problems);
    let call_creds = call_creds(entry, options, problems);
    let features = features(entry, problems);
    Some(ServerConfig {
        uri: uri?.to_owned(),
        target: target?,
        channel_creds: channel_creds?,
        call_creds,
        features,
    })
}

/// A27-31: unknown elements of any kind are ignored.
fn features(entry: &Place<'_>, problems: &mut Problems) -> ServerFeatures {
    let list = entry.field("server_features").and_then(|field| field.list(problems)).unwrap_or_default();
    let has = |name: &str| list.iter().any(|feature| feature.value().as_str() == Some(name));
    ServerFeatures {
        ignore_resource_deletion: has("ignore_resource_deletion"),
        fail_on_data_errors: has("fail_on_data_errors"),
        resource_timer_is_transient_error: has("resource_timer_is_transient_error"),
        trusted_xds_server: has("trusted_xds_server"),
    }
}

/// The path of a URI whose authority must be empty: `///path`, or `path` alone.
fn without_authority<'a>(uri: &str, rest: &'a str) -> Result<&'a str, String> {
    match rest.strip_prefix("//") {
        None => Ok(rest),
        Some(rest) => match rest.strip_prefix('/') {
            Some(path) => Ok(path),
            None => Err(format!("{uri:?} has an authority, which is not supported; write three slashes")),
        },
    }
}

fn addresses(uri: &str, rest: &str, family: impl Fn(&IpAddr) -> bool) -> Result<ServerTarget, String> {
    let mut addresses = Vec::new();
    for text in without_authority(uri, rest)?.split(',') {
        match host_port(uri, text)? {
            ServerTarget::Addresses(list) if list.iter().all(|address| family(&address.ip())) => {
                addresses.extend(list);
            }
            _ => return Err(format!("{uri:?}: {text:?} is not an address of that family")),
        }
    }
    Ok(ServerTarget::Addresses(addresses))
}

fn host_port(uri: &str, text: &str) -> Result<ServerTarget, String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(|| format!("{uri:?} lacks a closing bracket"))?;
        let ip: Ipv6Addr = host.parse().map_err(|_| format!("{uri:?}: {host:?} is not an IPv6 address"))?;
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => DEFAULT_PORT,
            port => port_number(uri, port.unwrap_or_default())?,
        };
        return Ok(ServerTarget::Addresses(vec![(ip, port).into()]));
    } else if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Ok(ServerTarget::Addresses(vec![(ip, DEFAULT_PORT).into()]));
    } else {
        match text.split_once(':') {
            None => (text, DEFAULT_PORT),
            Some((host, port)) => (host, port_number(uri, port)?),
        }
    };
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(ServerTarget::Addresses(vec![(ip, port).into()]));
    }
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || "/?#@,%".contains(c)) {
        return Err(format!("{uri:?}: {host:?} is not a host name"));
    }
    Ok(ServerTarget::Dns { host: host.to_owned(), port })
}

fn port_number(uri: &str, text: &str) -> Result<u16, String> {
    text.parse()
        .ok()
        .filter(|&port| port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("{uri:?}: {text:?} is not a port"))
}
