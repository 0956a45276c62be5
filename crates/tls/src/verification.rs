//! The errors of a server's verification.

use std::fmt;

use crate::certificate::Certificate;

/// A server's certificate that is not accepted: the check that failed, the expectation and the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationError {
    /// The check that failed.
    pub check: Check,
    /// The reason.
    pub why: String,
    /// The expectation, if it says more than the reason.
    pub wanted: Option<String>,
    /// The certificate that the server has presented, if it could be parsed.
    pub presented: Option<Box<Certificate>>,
}

/// The checks of a server's certificate, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The size of the chain.
    Size,
    /// The encoding of the certificate.
    Encoding,
    /// The trust domain of the server's SPIFFE id (gRFC A87).
    TrustDomain,
    /// The chain from the certificate to a root, its signatures and the validity of its certificates.
    Chain,
    /// The names in the certificate.
    Name,
}

impl fmt::Display for VerificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let check = match self.check {
            Check::Size => "the size of its chain",
            Check::Encoding => "its encoding",
            Check::TrustDomain => "its trust domain",
            Check::Chain => "its chain",
            Check::Name => "its names",
        };
        write!(f, "the server's certificate is not accepted for {check}: {}", self.why)?;
        if let Some(wanted) = &self.wanted {
            write!(f, "; wanted: {wanted}")?;
        }
        match &self.presented {
            Some(presented) => write!(f, "; presented: {presented}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for VerificationError {}
