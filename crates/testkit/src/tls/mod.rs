//! Certificates for tests: an authority that issues them, and files that hold them the way a bootstrap names them.
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

pub use authority::{Authority, Issued, Leaf};
pub use files::CertificateFolder;
