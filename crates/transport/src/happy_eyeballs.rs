//! Connecting to a server that has several addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connect::{ConnectError, connect};
use crate::connector::Connector;
use crate::{Address, ConnectOptions, Connection};

/// A61: the delay before the next attempt starts.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects on the byte streams that `connector` opens to the first of these addresses that is READY, by happy eyeballs (gRFC A61, RFC 8305): address families
/// alternate, and the next attempt starts when the previous one has failed or run for 250 ms. An address that accepts
/// the connection and sends no SETTINGS does not delay the others either. Each attempt has the full connect timeout.
///
/// Dropping the future cancels all attempts.
///
/// # Errors
/// The error of each address; empty if there are no addresses.
pub async fn connect_any<B>(
    connector: &Arc<dyn Connector>,
    addresses: Vec<Address>,
    options: &ConnectOptions,
) -> Result<(Address, Connection<B>), Vec<ConnectError>>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    let mut waiting = interleaved(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut failures = Vec::new();
    loop {
        if let Some(address) = waiting.next() {
            let (connector, options) = (Arc::clone(connector), options.clone());
            attempts.spawn(async move {
                let result = connect(&*connector, &address, &options).await;
                (address, result)
            });
        }
        // The next attempt starts after a failure or the delay, whichever comes first.
        tokio::select! {
            biased;
            ended = attempts.join_next() => match ended {
                Some(Ok((address, Ok(connection)))) => return Ok((address, connection)),
                Some(Ok((_, Err(error)))) => failures.push(error),
                // A task of a runtime that is shutting down.
                Some(Err(_)) => {}
                None => return Err(failures),
            },
            () = sleep(ATTEMPT_DELAY), if waiting.len() > 0 => {}
        }
    }
}

/// A61: address families alternate, starting with that of the first address.
fn interleaved(addresses: Vec<Address>) -> Vec<Address> {
    let is_v6 = |address: &Address| matches!(address, Address::Tcp(SocketAddr::V6(_)));
    let first = addresses.first().map(is_v6);
    let (one, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| Some(is_v6(address)) == first);
    let mut other = other.into_iter();
    let mut turns: Vec<_> =
        one.into_iter().flat_map(|address| [Some(address), other.next()]).flatten().collect();
    turns.extend(other);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a61_families_take_turns() {
        let order = |texts: &[&str]| {
            let addresses =
                texts.iter().map(|text| Address::Tcp(text.parse().expect("an address"))).collect();
            interleaved(addresses).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            order(&["[::1]:1", "[::1]:2", "[::1]:3", "1.1.1.1:1", "1.1.1.1:2"]),
            "ipv6:[::1]:1 ipv4:1.1.1.1:1 ipv6:[::1]:2 ipv4:1.1.1.1:2 ipv6:[::1]:3"
        );
        assert_eq!(
            order(&["1.1.1.1:1", "[::1]:1", "[::1]:2", "[::1]:3"]),
            "ipv4:1.1.1.1:1 ipv6:[::1]:1 ipv6:[::1]:2 ipv6:[::1]:3"
        );
        assert_eq!(order(&[]), "");
    }
}
