//! Hosts that need no resolver.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::dependency_manager::DnsName;

/// The addresses of a host that is a literal (IPv6 with or without brackets) or `localhost`.
pub(super) fn addresses(DnsName { host, port }: &DnsName) -> Option<Vec<SocketAddr>> {
    let localhost = host.strip_suffix('.').unwrap_or(host);
    if localhost.eq_ignore_ascii_case("localhost") {
        let both = [IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::LOCALHOST)];
        return Some(both.map(|ip| SocketAddr::new(ip, *port)).into());
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<Ipv4Addr>() {
        return (bare.len() == host.len()).then(|| vec![SocketAddr::new(ip.into(), *port)]);
    }
    // With a numeric scope, if there is one. Only the system knows the numbers of named scopes.
    format!("[{bare}]:{port}").parse().ok().map(|address| vec![address])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str) -> Option<String> {
        let found = addresses(&DnsName { host: host.into(), port: 80 })?;
        Some(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn literals_need_no_resolver() {
        for (host, expected) in [
            ("10.0.0.1", "10.0.0.1:80"),
            ("::1", "[::1]:80"),
            ("[::1]", "[::1]:80"),
            ("fe80::1%2", "[fe80::1%2]:80"),
            ("localhost", "[::1]:80 127.0.0.1:80"),
            ("LocalHost.", "[::1]:80 127.0.0.1:80"),
        ] {
            assert_eq!(of(host).as_deref(), Some(expected), "{host}");
        }
    }

    #[test]
    fn names_do() {
        for host in [
            "a.example",
            "localhost.example",
            "10.0.0",
            "[10.0.0.1]",
            "fe80::1%eth0",
            "",
            "[",
            "[]",
            "1.2.3.4.",
        ] {
            assert_eq!(of(host), None, "{host}");
        }
    }
}
