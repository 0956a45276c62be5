//! The credentials of a channel: the source of the TLS settings of its connections to backends (gRFC A29).

use proxyless_balancer::tree::SecurityLevel;
use proxyless_mesh::security::ClusterTls;

use crate::bootstrap::CertificateFiles;

/// The source of the TLS settings of a channel's connections to its backends; see
/// [`XdsChannelBuilder::credentials`](crate::XdsChannelBuilder::credentials).
///
/// The connection to the management server is secured as its `channel_creds` in the bootstrap say.
// A29-01: the opt-in, with its fallback. A29-04: plaintext ignores the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XdsCredentials {
    /// The control plane: the connections to a cluster with TLS settings (`transport_socket`) use TLS as these say, and
    /// never anything less. The endpoints of clusters without TLS settings get the [`Fallback`].
    Xds(Fallback),
    /// Nobody: the TLS settings of clusters are validated and then ignored, and all connections are plaintext. For
    /// channels whose [connector](crate::XdsChannelBuilder::connector) secures them already.
    Plaintext,
}

/// How a channel with xDS credentials connects to the endpoints of clusters without TLS settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// In plaintext.
    Plaintext,
    /// With TLS: the server must have a certificate for the name of the channel's target, issued by one of these roots,
    /// or of the system's if there are none. With an identity it is mTLS.
    Tls(CertificateFiles),
    /// Not at all: attempts to connect fail with an error that says so.
    None,
}

/// xDS credentials with a plaintext fallback.
impl Default for XdsCredentials {
    fn default() -> Self {
        Self::Xds(Fallback::Plaintext)
    }
}

impl XdsCredentials {
    /// The security of connections to endpoints without TLS settings.
    pub(crate) fn fallback_security(&self) -> SecurityLevel {
        match self {
            Self::Xds(Fallback::Tls(_)) => SecurityLevel::PrivacyAndIntegrity,
            Self::Xds(_) | Self::Plaintext => SecurityLevel::None,
        }
    }

    pub(crate) fn cluster_tls(&self) -> ClusterTls {
        match self {
            Self::Xds(_) => ClusterTls::Used,
            Self::Plaintext => ClusterTls::Ignored,
        }
    }
}
