//! The certificates that a server is verified with.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::UnixTime;

use crate::certificate::Certificate;
use crate::roots::Roots;
use crate::spiffe::TrustBundleMap;

/// Root certificates: the same ones for every server, or by trust domain.
#[derive(Debug)]
pub enum Trust {
    /// The same roots for every server.
    Roots(Roots),
    /// The roots of the server's trust domain (gRFC A87).
    Spiffe(TrustBundleMap),
}

impl Trust {
    /// The roots for a server with this certificate.
    pub(crate) fn roots_for(&self, peer: &Certificate, now: UnixTime) -> Result<Arc<RootCertStore>, String> {
        match self {
            Self::Roots(roots) => Ok(roots.valid(now)),
            Self::Spiffe(map) => Ok(map.roots_of(peer)?.valid(now)),
        }
    }
}

/// What a server must be trusted by, in a few words.
impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Roots(roots) => write!(f, "a chain to one of {} root certificates", roots.len()),
            Self::Spiffe(map) => {
                f.write_str("a SPIFFE id in one of the trust domains [")?;
                for (i, domain) in map.domains().take(10).enumerate() {
                    write!(f, "{}{domain}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}
