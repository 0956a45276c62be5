//! The `user-agent` header, as gRPC forms it.

use http::HeaderValue;

const OURS: &str = concat!("grpc-rust-proxyless/", env!("CARGO_PKG_VERSION"));

/// Ours, preceded by the application's own if it set one.
pub(crate) fn header(application: Option<&HeaderValue>) -> HeaderValue {
    let Some(application) = application else { return HeaderValue::from_static(OURS) };
    let joined = [application.as_bytes(), b" ", OURS.as_bytes()].concat();
    // Both parts are valid header bytes, and so is a space between them.
    HeaderValue::from_bytes(&joined).unwrap_or_else(|_| HeaderValue::from_static(OURS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_applications_name_comes_first() {
        assert!(header(None).to_str().unwrap().starts_with("grpc-rust-proxyless/"));
        let both = header(Some(&HeaderValue::from_static("shop/2")));
        assert!(both.to_str().unwrap().starts_with("shop/2 grpc-rust-proxyless/"));
    }
}
