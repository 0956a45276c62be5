//! A [`Connector`] that secures the byte streams of another one.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use proxyless_transport::{Address, BoxedIo, Connecting, Connector};

use crate::client_tls::ClientTls;
use crate::handshake::TlsInfo;
use crate::settings::TlsSettings;

/// Secures the byte streams that another connector opens. It is made for one attempt, or for several with the same settings
/// and server name.
pub struct SecureConnector {
    inner: Arc<dyn Connector>,
    tls: Arc<ClientTls>,
    settings: TlsSettings,
    server_name: Option<Arc<str>>,
    info: Mutex<Option<TlsInfo>>,
}

impl SecureConnector {
    /// Secures the streams of `inner`. The server name is that of [`TlsSettings::server_name`].
    #[must_use]
    pub fn new(
        inner: Arc<dyn Connector>,
        tls: Arc<ClientTls>,
        settings: TlsSettings,
        server_name: Option<Arc<str>>,
    ) -> Self {
        Self { inner, tls, settings, server_name, info: Mutex::default() }
    }

    /// The properties of the latest connection.
    #[must_use]
    pub fn info(&self) -> Option<TlsInfo> {
        // The value is consistent even if a holder panicked.
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Connector for SecureConnector {
    fn connect<'a>(&'a self, address: &'a Address) -> Connecting<'a> {
        Box::pin(async move {
            let io = self.inner.connect(address).await?;
            let peer = match address {
                Address::Tcp(address) => Some(address.ip()),
                _ => None,
            };
            let secured = self.tls.handshake(io, &self.settings, self.server_name.as_deref(), peer).await;
            let secured = secured.map_err(io::Error::other)?;
            *self.info.lock().unwrap_or_else(PoisonError::into_inner) = Some(secured.info);
            Ok(BoxedIo::new(secured.stream))
        })
    }
}

impl fmt::Debug for SecureConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("SecureConnector");
        f.field("settings", &self.settings).field("server_name", &self.server_name).finish_non_exhaustive()
    }
}
