//! The system's root certificates (gRFC A65, A82).

use rustls_native_certs::CertificateResult;

use crate::roots::Roots;

/// A82-05: loads the system's roots; the variables `SSL_CERT_FILE` and `SSL_CERT_DIR` may name others. Blocks.
pub(crate) fn load() -> Result<Roots, String> {
    usable(rustls_native_certs::load_native_certs())
}

fn usable(found: CertificateResult) -> Result<Roots, String> {
    let roots = Roots::from_usable(found.certs);
    if roots.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let why = if errors.is_empty() { "none found".to_owned() } else { errors.join("; ") };
        return Err(format!("the system has no root certificates: {why}"));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use proxyless_testkit::tls::{Authority, CertificateFolder};
    use rustls_native_certs::load_certs_from_paths;

    use super::*;

    #[test]
    fn a82_05_usable_roots_are_taken() {
        let folder = CertificateFolder::new().unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let pem = format!("{}{broken}{}", Authority::new("a").pem(), Authority::new("b").pem());
        folder.write(&folder.ca_file(), &pem).unwrap();
        assert_eq!(usable(load_certs_from_paths(Some(&folder.ca_file()), None)).unwrap().len(), 2);
    }

    #[test]
    fn a82_05_a_system_without_roots_is_an_error() {
        let folder = CertificateFolder::new().unwrap();
        let why = usable(load_certs_from_paths(Some(&folder.path("none.pem")), None)).unwrap_err();
        assert!(why.contains("no root certificates") && why.contains("none.pem"), "{why}");
    }
}
