//! Certificates for tests: an authority that issues them, files that hold them the way a bootstrap names them, and servers
//! that use them ([`ServerTls`] has a whole mTLS mesh as example).
//!
//! ```
//! use proxyless_testkit::tls::{Authority, CertificateFolder, Leaf};
//!
//! let ca = Authority::new("test CA");
//! let server = ca.issue(Leaf::new("backend").uri("spiffe://mesh.example/ns/prod/sa/api"));
//! let folder = CertificateFolder::new()?;
//! folder.write_ca(&[&ca])?;
//! folder.write_identity(&ca.issue(Leaf::new("client")))?;
//! folder.write_identity(&ca.issue(Leaf::new("client, rotated")))?;
//! # assert!(server.chain_pem().starts_with("-----BEGIN CERTIFICATE-----"));
//! # Ok::<(), std::io::Error>(())
//! ```

mod authority;
mod files;
mod server;
#[cfg(test)]
mod tests;

pub use authority::{Authority, Issued, Leaf};
pub use files::CertificateFolder;
pub use server::ServerTls;
