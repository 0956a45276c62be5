//! How each connection attempt of a channel is secured.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use http::uri::Scheme;
use proxyless_balancer::api::Security;
use proxyless_mesh::security::EndpointTls;
use proxyless_tls::{ClientTls, SecureConnector, TlsInfo, TlsSettings};
use proxyless_transport::{Address, ConnectError, Connecting, Connector, Tunnel};

use crate::credentials::{Fallback, XdsCredentials};

/// The TLS of a client; the reason if there is none.
pub(crate) type MaybeTls = Result<Arc<ClientTls>, Arc<str>>;

/// Secures the connections of one channel.
#[derive(Clone)]
pub(crate) struct ConnectionSecurity {
    pub(crate) credentials: XdsCredentials,
    /// The name of the target, which the servers of the TLS fallback must have.
    pub(crate) target_name: Arc<str>,
    pub(crate) tls: MaybeTls,
    /// Opens the byte streams.
    pub(crate) connector: Arc<dyn Connector>,
}

/// The connector of one attempt.
pub(super) struct AttemptConnector {
    kind: Kind,
    /// The tunnel below TLS, if the attempt goes through a proxy.
    tunnel: Option<Arc<Tunnel>>,
}

enum Kind {
    Plaintext(Arc<dyn Connector>),
    Tls { connector: Box<SecureConnector>, identity: bool },
    Refused(Refused),
}

impl ConnectionSecurity {
    /// The scheme of requests to endpoints without security settings.
    pub(super) fn fallback_scheme(&self) -> Scheme {
        match self.credentials {
            XdsCredentials::Xds(Fallback::Tls(_)) => Scheme::HTTPS,
            _ => Scheme::HTTP,
        }
    }

    /// The connector for an endpoint with this security, through this proxy.
    pub(super) fn connector(
        &self,
        security: Option<&Security>,
        proxy: Option<SocketAddr>,
    ) -> AttemptConnector {
        // A86-06, A86-13: TLS, if any, is between client and endpoint, inside the tunnel.
        let tunnel = proxy.map(|proxy| Arc::new(Tunnel::new(Arc::clone(&self.connector), proxy)));
        let below = match &tunnel {
            Some(tunnel) => Arc::clone(tunnel) as Arc<dyn Connector>,
            None => Arc::clone(&self.connector),
        };
        AttemptConnector { kind: self.secured(security, below), tunnel }
    }

    /// Secures a connector. A29-02: the fallback is for endpoints without security.
    fn secured(&self, security: Option<&Security>, below: Arc<dyn Connector>) -> Kind {
        let (settings, hostname) = match (security, &self.credentials) {
            (Some(security), _) => match security.settings::<EndpointTls>() {
                Some(EndpointTls { tls, hostname }) => {
                    (TlsSettings::Upstream(Arc::clone(tls)), hostname.as_deref())
                }
                // A29-03: never weaker than requested.
                None => {
                    return Kind::refused("the security settings of the endpoint are unknown");
                }
            },
            (None, XdsCredentials::Plaintext | XdsCredentials::Xds(Fallback::Plaintext)) => {
                return Kind::Plaintext(below);
            }
            (None, XdsCredentials::Xds(Fallback::Tls(files))) => {
                (TlsSettings::Server(files.clone()), Some(&*self.target_name))
            }
            (None, XdsCredentials::Xds(Fallback::None)) => {
                return Kind::refused(
                    "its cluster has no TLS settings, and the channel's credentials have no fallback",
                );
            }
        };
        match &self.tls {
            Ok(tls) => {
                let identity = match &settings {
                    TlsSettings::Upstream(tls) => tls.identity.is_some(),
                    TlsSettings::Server(files) => files.identity.is_some(),
                };
                let connector = Box::new(secure(&below, tls, settings, hostname));
                Kind::Tls { connector, identity }
            }
            Err(why) => Kind::refused(why),
        }
    }
}

/// Secures the byte streams of a connector.
pub(super) fn secure(
    connector: &Arc<dyn Connector>,
    tls: &Arc<ClientTls>,
    settings: TlsSettings,
    hostname: Option<&str>,
) -> SecureConnector {
    let server_name = settings.server_name(hostname).map(Arc::from);
    SecureConnector::new(Arc::clone(connector), Arc::clone(tls), settings, server_name)
}

impl Kind {
    fn refused(why: &str) -> Self {
        Self::Refused(Refused(why.into()))
    }
}

impl AttemptConnector {
    pub(super) fn connector(&self) -> &dyn Connector {
        match &self.kind {
            Kind::Plaintext(connector) => &**connector,
            Kind::Tls { connector, .. } => &**connector,
            Kind::Refused(refused) => refused,
        }
    }

    /// TLS of the connection, if it has TLS.
    pub(super) fn info(&self) -> Option<TlsInfo> {
        match &self.kind {
            Kind::Tls { connector, .. } => connector.info(),
            Kind::Plaintext(_) | Kind::Refused(_) => None,
        }
    }

    /// The reason of a failed attempt.
    pub(super) fn reason(&self, error: &ConnectError) -> String {
        let reason = match (&self.tunnel, &self.kind) {
            (Some(tunnel), Kind::Plaintext(_) | Kind::Tls { .. }) => tunnel.reason(error),
            _ => error.reason(),
        };
        match &self.kind {
            // A29-13, TLS 1.3: a server refuses a client after the handshake of the client has ended.
            Kind::Tls { connector, identity: false }
                if connector.info().is_some() && !matches!(error, ConnectError::Io { .. }) =>
            {
                format!(
                    "{reason} (the TLS handshake succeeded: the server may require a certificate of the client, \
                     but the TLS settings have none)"
                )
            }
            _ => reason,
        }
    }
}

/// A connector that refuses every attempt.
pub(super) struct Refused(Arc<str>);

impl Refused {
    pub(super) fn new(why: &str) -> Self {
        Self(why.into())
    }
}

impl Connector for Refused {
    fn connect<'a>(&'a self, _: &'a Address) -> Connecting<'a> {
        Box::pin(async move { Err(io::Error::other(&*self.0)) })
    }
}

impl fmt::Debug for ConnectionSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSecurity").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}
