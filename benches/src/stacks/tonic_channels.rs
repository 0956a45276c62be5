//! The channels of tonic itself.

use tonic::transport::{Channel, Endpoint};

use crate::service::BoxError;

/// One channel to the first address.
pub(crate) fn single(addresses: &[String]) -> Result<Channel, BoxError> {
    let first = addresses.first().ok_or("no address")?;
    Ok(endpoint(first)?.connect_lazy())
}

/// A channel over all addresses.
pub(crate) fn balanced(addresses: &[String]) -> Result<Channel, BoxError> {
    let endpoints = addresses.iter().map(|address| endpoint(address)).collect::<Result<Vec<_>, _>>()?;
    Ok(Channel::balance_list(endpoints.into_iter()))
}

fn endpoint(address: &str) -> Result<Endpoint, BoxError> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true))
}
