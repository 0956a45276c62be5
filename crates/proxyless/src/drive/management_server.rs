//! The connection to a management server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::{Request, Response, Version};
use proxyless_mesh::listing::listing;
use proxyless_tls::{JwtTokenFile, TlsSettings};
use proxyless_transport::{
    Address, Body, ConnectOptions, Connection, Connector, Opening, SendError, TcpConnector, connect_any, dns,
    open,
};
use proxyless_xds::bootstrap::{CallCreds, CertificateFiles, ChannelCreds, ServerConfig, ServerTarget};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;
use tracing::debug;

#[cfg(feature = "google-default")]
use super::google_default::GoogleDefault;
use super::security::{MaybeTls, Refused, secure};
use super::stream::RequestStream;
use super::stream_credentials::StreamCredentials;
use crate::targets;
use crate::user_agent;

/// The keepalive interval; servers commonly refuse PINGs more often than every five minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);
/// The time limit for resolving the server's name.
const DNS_TIMEOUT: Duration = Duration::from_secs(20);

/// How much overhead unread DATA frames may have: 65,536 of the shortest, which take 32 MiB. A window full of
/// minimal responses uses a fifth of that.
const MAX_UNREAD_OVERHEAD: usize = 16 << 20;

pub(crate) type ServerConnection = Connection<RequestStream>;

/// A management server, and the live connection to it if there is one.
///
/// ADS and load reports share the connection, and each keeps it open until it [disconnects](Self::disconnect): between
/// two streams, too. Clones are for the tasks of streams, which keep it open while they run.
#[derive(Clone)]
pub(crate) struct ManagementServer {
    target: Arc<ServerTarget>,
    options: ConnectOptions,
    connector: Arc<dyn Connector>,
    transport: Transport,
    credentials: Arc<[Box<dyn StreamCredentials>]>,
    /// The connection for new streams of all users.
    shared: Arc<Mutex<Weak<ServerConnection>>>,
    /// The connection that this user keeps open.
    held: Arc<ArcSwapOption<ServerConnection>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Plaintext,
    Tls,
}

impl ManagementServer {
    /// Connects by TCP or Unix domain socket if there is no connector.
    pub(crate) fn new(server: &ServerConfig, connector: Option<Arc<dyn Connector>>, tls: MaybeTls) -> Self {
        let defaults = ConnectOptions::default();
        let options = ConnectOptions {
            // It never grows: the limits on unread responses are those of one window.
            max_stream_window: defaults.initial_stream_window,
            keepalive_interval: Some(KEEPALIVE_INTERVAL),
            keepalive_while_idle: true,
            max_unread_overhead: Some(MAX_UNREAD_OVERHEAD),
            ..defaults
        };
        let connector = connector.unwrap_or_else(|| Arc::new(TcpConnector::for_options(&options)));
        let (connector, transport): (Arc<dyn Connector>, _) = match &server.channel_creds {
            ChannelCreds::Insecure => (connector, Transport::Plaintext),
            ChannelCreds::Tls(files) => (with_tls(connector, tls, files, &server.target), Transport::Tls),
            // A27-20: without files the roots are the system's.
            #[cfg(feature = "google-default")]
            ChannelCreds::GoogleDefault => {
                let files = CertificateFiles::default();
                (with_tls(connector, tls, &files, &server.target), Transport::Tls)
            }
            #[cfg(not(feature = "google-default"))]
            ChannelCreds::GoogleDefault => {
                let why =
                    "its channel_creds google_default need the cargo feature google-default of proxyless";
                (Arc::new(Refused::new(why)), Transport::Tls)
            }
            _ => (Arc::new(Refused::new("its channel_creds are not supported")), Transport::Tls),
        };
        Self {
            target: Arc::new(server.target.clone()),
            options,
            connector,
            transport,
            credentials: stream_credentials(server),
            shared: Arc::default(),
            held: Arc::default(),
        }
    }

    /// The same server for another user of its connection.
    pub(crate) fn for_other_streams(&self) -> Self {
        Self { held: Arc::default(), ..self.clone() }
    }

    /// This user does not need the connection any more: it is closed unless another one holds it.
    pub(crate) fn disconnect(&mut self) {
        // The task of a stream that was just closed may still connect: it holds that connection in the old place.
        self.held = Arc::default();
    }

    /// The live connection, or a new one.
    ///
    /// # Errors
    /// The connection errors of all addresses.
    pub(crate) async fn connect(&self) -> Result<Connected, String> {
        let current = Arc::clone(&self.shared).lock_owned().await;
        if let Some(connection) = current.upgrade().filter(|connection| connection.is_open()) {
            self.held.store(Some(Arc::clone(&connection)));
            return Ok(Connected::Ready(connection));
        }
        self.held.store(None);
        let addresses = self.addresses().await?;
        let place = Place { server: self.clone(), current };
        if let [address] = &*addresses {
            let opening = open(&*self.connector, address, &self.options).await;
            let opening = opening.map_err(|error| error.to_string())?;
            return Ok(Connected::Opening(Box::new(OpeningConnection { opening, place })));
        }
        // A61: the server's addresses race, like those of an endpoint.
        match connect_any(&self.connector, addresses, &self.options).await {
            Ok((address, connection)) => Ok(Connected::Ready(place.take(&address, connection))),
            Err(failures) => {
                let mut failures: Vec<_> = failures.iter().map(ToString::to_string).collect();
                if failures.is_empty() {
                    failures.push("the attempts to connect were aborted".into());
                }
                Err(listing(failures.iter().map(String::as_str), "; "))
            }
        }
    }

    /// Makes the next stream open a new connection. Streams of this one keep it alive.
    pub(crate) async fn forget(&self, full: &Arc<ServerConnection>) {
        let mut current = self.shared.lock().await;
        if std::ptr::eq(current.as_ptr(), Arc::as_ptr(full)) {
            *current = Weak::new();
        }
    }

    /// A gRPC request to the server.
    ///
    /// # Errors
    /// If a token is missing, or must not be sent.
    pub(crate) async fn request(
        &self,
        method: &str,
        body: RequestStream,
    ) -> Result<Request<RequestStream>, String> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = Version::HTTP_2;
        let uri = http::Uri::builder()
            .scheme(if self.transport == Transport::Tls { "https" } else { "http" })
            .authority(self.target.authority())
            .path_and_query(method)
            .build();
        // A validated bootstrap has no invalid authority; the path alone still works.
        *request.uri_mut() = uri.unwrap_or_else(|_| http::Uri::from_static("http://localhost"));
        let headers = request.headers_mut();
        headers.insert("content-type", http::HeaderValue::from_static("application/grpc"));
        headers.insert("te", http::HeaderValue::from_static("trailers"));
        headers.insert("user-agent", user_agent::header(None));
        for credentials in self.credentials.iter() {
            // A97-17: a token is never sent without TLS.
            if self.transport != Transport::Tls {
                return Err("call_creds are not sent without TLS: channel_creds must be tls".to_owned());
            }
            for (name, value) in &credentials.headers().await? {
                headers.append(name, value.clone());
            }
        }
        Ok(request)
    }

    async fn addresses(&self) -> Result<Vec<Address>, String> {
        match &*self.target {
            ServerTarget::Unix(path) => Ok(vec![Address::Unix(path.clone())]),
            ServerTarget::Addresses(addresses) => Ok(addresses.iter().copied().map(Address::Tcp).collect()),
            ServerTarget::Dns { host, port } => {
                let found = timeout(DNS_TIMEOUT, tokio::net::lookup_host((host.as_str(), *port))).await;
                let found =
                    found.map_err(|_| format!("cannot resolve {host}: no answer within {DNS_TIMEOUT:?}"))?;
                let found = found.map_err(|error| format!("cannot resolve {host}: {error}"))?;
                let found: Vec<_> = dns::by_preference(found).into_iter().map(Address::Tcp).collect();
                if found.is_empty() { Err(format!("{host} has no address")) } else { Ok(found) }
            }
        }
    }
}

/// A connection for a stream.
pub(crate) enum Connected {
    Ready(Arc<ServerConnection>),
    /// The server has one address, so no other attempt can win.
    Opening(Box<OpeningConnection>),
}

/// A connection that is not READY yet. Other streams wait until it is, or has failed.
pub(crate) struct OpeningConnection {
    opening: Opening<RequestStream>,
    place: Place,
}

impl OpeningConnection {
    /// Sends the request of a stream at once.
    pub(crate) fn send(
        &self,
        request: Request<RequestStream>,
    ) -> impl Future<Output = Result<Response<Body>, SendError<RequestStream>>> + Send + use<> {
        self.opening.send(request)
    }

    /// Waits until the connection is READY. Then other streams may use it.
    ///
    /// # Errors
    /// The connection error.
    pub(crate) async fn ready(self) -> Result<Arc<ServerConnection>, String> {
        let Self { opening, place } = self;
        let address = opening.address().clone();
        let connection = opening.settled().await.map_err(|error| error.to_string())?;
        Ok(place.take(&address, connection))
    }
}

/// The place of the connection that all streams of a server share, locked while one of them connects.
struct Place {
    server: ManagementServer,
    current: OwnedMutexGuard<Weak<ServerConnection>>,
}

impl Place {
    fn take(mut self, address: &Address, connection: ServerConnection) -> Arc<ServerConnection> {
        debug!(target: targets::XDS_CLIENT, server = %self.server.target, %address, "connected");
        let connection = Arc::new(connection);
        *self.current = Arc::downgrade(&connection);
        self.server.held.store(Some(Arc::clone(&connection)));
        connection
    }
}

/// A65-01, A65-02, A65-03: secures a connector with the roots and the identity of these files.
fn with_tls(
    connector: Arc<dyn Connector>,
    tls: MaybeTls,
    files: &CertificateFiles,
    target: &ServerTarget,
) -> Arc<dyn Connector> {
    match tls {
        Ok(tls) => {
            let settings = TlsSettings::Server(files.clone());
            Arc::new(secure(&connector, &tls, settings, Some(&target.authority())))
        }
        Err(why) => Arc::new(Refused::new(&why)),
    }
}

/// The credentials of every stream to this server.
fn stream_credentials(server: &ServerConfig) -> Arc<[Box<dyn StreamCredentials>]> {
    let mut credentials: Vec<Box<dyn StreamCredentials>> = Vec::new();
    #[cfg(feature = "google-default")]
    if server.channel_creds == ChannelCreds::GoogleDefault {
        credentials.push(Box::new(GoogleDefault::default()));
    }
    for creds in &server.call_creds {
        if let CallCreds::JwtTokenFile(file) = creds {
            credentials.push(Box::new(JwtTokenFile::new(file.clone())));
        }
    }
    credentials.into()
}

#[cfg(test)]
mod tests {
    use proxyless_xds::bootstrap::Bootstrap;

    use super::*;

    /// A server that delays its acknowledgement of SETTINGS would otherwise make them grow.
    #[test]
    fn the_windows_of_a_management_server_do_not_grow() {
        let bootstrap = r#"{
            "xds_servers": [{ "server_uri": "localhost:1", "channel_creds": [{ "type": "insecure" }] }],
            "node": { "id": "n" }
        }"#;
        let bootstrap = Bootstrap::from_json(bootstrap).unwrap();
        let server = ManagementServer::new(bootstrap.server(), None, Err("TLS is not used".into()));
        let ConnectOptions { initial_stream_window, max_stream_window, .. } = server.options;
        assert_eq!(max_stream_window, initial_stream_window);
    }
}
