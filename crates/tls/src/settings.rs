//! How a connection is secured.

use std::net::IpAddr;
use std::sync::Arc;

use proxyless_xds::bootstrap::CertificateFiles;
use proxyless_xds::resource::UpstreamTls;

/// How a connection is secured: names and files, but no key material. Connections with equal settings (and equal server
/// names) may be shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TlsSettings {
    /// To an endpoint of a cluster (gRFC A29).
    Upstream(Arc<UpstreamTls>),
    /// To a server that must have a certificate for its host name: a management server (gRFC A65), or any other server for
    /// which the application has given the files. Without roots the system's are used.
    Server(CertificateFiles),
}

impl TlsSettings {
    /// The server name of the handshake with an endpoint of this hostname. A101-01, A101-03, A101-04: that of the
    /// endpoint if `auto_host_sni` asks for it, else `sni`, else none; an address is not a server name.
    #[must_use]
    pub fn server_name<'a>(&'a self, hostname: Option<&'a str>) -> Option<&'a str> {
        let hostname = hostname.map(without_port).filter(|name| !name.is_empty());
        match self {
            Self::Server(_) => hostname,
            Self::Upstream(tls) => {
                let name = hostname.filter(|name| tls.auto_host_sni && !is_address(name));
                name.or(tls.sni.as_deref())
            }
        }
    }
}

/// A101-02: the port is not part of the server name.
fn without_port(hostname: &str) -> &str {
    if let Some(rest) = hostname.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    match hostname.split_once(':') {
        Some((name, port)) if !port.contains(':') => name,
        _ => hostname,
    }
}

fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use proxyless_xds::resource::RootCertificates;

    use super::*;

    fn upstream(sni: Option<&str>, auto_host_sni: bool) -> TlsSettings {
        TlsSettings::Upstream(Arc::new(UpstreamTls {
            roots: RootCertificates::System,
            identity: None,
            match_subject_alt_names: vec![],
            sni: sni.map(Arc::from),
            auto_host_sni,
            auto_sni_san_validation: false,
        }))
    }

    #[test]
    fn a101_01_to_a101_04_the_server_name_is_the_host_then_sni_then_none() {
        for (sni, auto, hostname, expected) in [
            (None, false, Some("a.example"), None),
            (Some("s.example"), false, Some("a.example"), Some("s.example")),
            (Some("s.example"), true, Some("a.example"), Some("a.example")),
            (Some("s.example"), true, None, Some("s.example")),
            (Some("s.example"), true, Some(""), Some("s.example")),
            (None, true, Some("a.example:8080"), Some("a.example")),
            (None, true, None, None),
            (Some("s.example"), true, Some("127.0.0.1:80"), Some("s.example")),
            (None, true, Some("[::1]:80"), None),
            (None, true, Some("::1"), None),
        ] {
            assert_eq!(upstream(sni, auto).server_name(hostname), expected, "{sni:?} {auto} {hostname:?}");
        }
    }

    #[test]
    fn a65_01_a_server_is_known_by_its_host() {
        let settings = TlsSettings::Server(CertificateFiles::default());
        assert_eq!(settings.server_name(Some("a.example:443")), Some("a.example"));
        assert_eq!(settings.server_name(Some("[::1]:443")), Some("::1"));
        assert_eq!(settings.server_name(Some("127.0.0.1:443")), Some("127.0.0.1"));
    }

    #[test]
    fn settings_are_equal_by_content() {
        use std::collections::HashSet;
        let all: HashSet<_> = [
            upstream(None, false),
            upstream(None, false),
            upstream(Some("a"), false),
            upstream(None, true),
            TlsSettings::Server(CertificateFiles::default()),
            TlsSettings::Server(CertificateFiles::default()),
        ]
        .into();
        assert_eq!(all.len(), 4);
    }
}
