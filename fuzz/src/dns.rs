//! DNS responses: the resolver against a server on a loopback socket that sends arbitrary bytes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proxyless_transport::dns::{DnsAnswer, Resolve, ResolveError, SystemResolver};
use tokio::net::UdpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The time limit of a lookup. The server always answers, so no lookup waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
const PORT: u16 = 7;
/// The length of a message's header.
const HEADER: usize = 12;

/// The response of a DNS server to each query: a byte that says whether the rest is a whole message (even), of which
/// only the id is corrected, or (odd) two bytes of flags, three with the numbers of records in the sections, and the
/// records, which are put after the question. A valid response without records follows, so that no lookup waits for a
/// timeout.
///
/// Properties: no panic; the lookup ends; addresses are unique, have the requested port, and occur in the response; an
/// error has a text.
pub fn dns(data: &[u8]) {
    match look_up(data) {
        Ok(found) => {
            let unique: BTreeSet<_> = found.addresses.iter().collect();
            assert!(!unique.is_empty(), "an answer has addresses");
            assert_eq!(unique.len(), found.addresses.len(), "{found:?}");
            for address in &found.addresses {
                assert_eq!(address.port(), PORT);
                assert!(occurs(address.ip(), data), "{address} is not in the answer");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Asks the server, which answers with this.
fn look_up(data: &[u8]) -> Result<DnsAnswer, ResolveError> {
    SERVER.with(|Server { runtime, address, answer }| {
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = data.to_vec();
        let resolver = SystemResolver::new().servers([*address]).timeout(Duration::from_secs(60)).retries(0);
        let lookup = async { timeout(PATIENCE, resolver.resolve("host.fuzz.test.", PORT)).await };
        runtime.block_on(lookup).expect("the lookup ends")
    })
}

fn occurs(ip: IpAddr, data: &[u8]) -> bool {
    match ip {
        IpAddr::V4(ip) => data.windows(4).any(|window| window == ip.octets()),
        IpAddr::V6(ip) => data.windows(16).any(|window| window == ip.octets()),
    }
}

struct Server {
    runtime: Runtime,
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
}

thread_local! {
    static SERVER: Server = Server::start();
}

impl Server {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let socket = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).expect("a loopback socket");
        let address = socket.local_addr().expect("the address of a bound socket");
        let answer = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&answer);
        runtime.spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let Some(query) = buffer.get(..length).filter(|query| query.len() > HEADER) else { continue };
                let data = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // The client may have its result already, and be gone.
                let _ = socket.send_to(&reply(query, &data), from).await;
                let _ = socket.send_to(&reply(query, NO_RECORDS), from).await;
            }
        });
        Self { runtime, address, answer }
    }
}

/// NOERROR, with empty sections.
const NO_RECORDS: &[u8] = &[1, 0x81, 0x80, 0, 0, 0];

/// The response that the input describes.
fn reply(query: &[u8], data: &[u8]) -> Vec<u8> {
    let (mode, data) = data.split_first().map_or((0, data), |(mode, rest)| (*mode, rest));
    let id = &query[..2];
    match data.split_first_chunk::<5>() {
        Some((&[f0, f1, answers, authorities, additionals], records)) if mode & 1 == 1 => {
            let header = [f0, f1, 0, 1, 0, answers, 0, authorities, 0, additionals];
            [id, &header, question(query), records].concat()
        }
        _ => [id, data.get(2..).unwrap_or_default()].concat(),
    }
}

/// The question of a query: its name, type and class.
fn question(query: &[u8]) -> &[u8] {
    let rest = &query[HEADER..];
    let mut at = 0;
    // Labels up to the empty one; queries have no pointers.
    while let Some(&length) = rest.get(at).filter(|length| **length > 0) {
        at += 1 + usize::from(length);
    }
    rest.get(..at + 5).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_the_corpus_are_heard() {
        let of = |seed: &[u8]| look_up(seed).map(|found| found.addresses);
        let a = of(include_bytes!("../corpus/dns/a")).expect("an address");
        assert_eq!(a, [SocketAddr::from(([127, 0, 0, 1], PORT))]);
        let alias = of(include_bytes!("../corpus/dns/alias")).expect("addresses behind an alias");
        assert!(alias.contains(&SocketAddr::from(([10, 0, 0, 2], PORT))), "{alias:?}");
        assert!(of(include_bytes!("../corpus/dns/no_name")).is_err());
        assert!(of(include_bytes!("../corpus/dns/whole")).is_err());
    }
}
