//! The channels of tonic itself.

use std::path::Path;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::service::BoxError;

/// One channel to the first address; over TLS if there is a file with roots.
pub(crate) fn single(addresses: &[String], ca: Option<&Path>) -> Result<Channel, BoxError> {
    let first = addresses.first().ok_or("no address")?;
    Ok(endpoint(first, ca)?.connect_lazy())
}

/// A channel over all addresses; over TLS if there is a file with roots.
pub(crate) fn balanced(addresses: &[String], ca: Option<&Path>) -> Result<Channel, BoxError> {
    let endpoints = addresses.iter().map(|address| endpoint(address, ca)).collect::<Result<Vec<_>, _>>()?;
    Ok(Channel::balance_list(endpoints.into_iter()))
}

fn endpoint(address: &str, ca: Option<&Path>) -> Result<Endpoint, BoxError> {
    let endpoint = |scheme| Endpoint::from_shared(format!("{scheme}://{address}"));
    let Some(ca) = ca else { return Ok(endpoint("http")?.tcp_nodelay(true)) };
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(std::fs::read(ca)?));
    Ok(endpoint("https")?.tcp_nodelay(true).tls_config(tls)?)
}
