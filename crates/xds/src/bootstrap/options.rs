//! The features that the caller of the parser supports.

use crate::Gates;

/// The credentials and experimental features that the client supports. By default those are `insecure` and
/// `tls`, and with the feature `google-default` also `google_default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootstrapOptions {
    /// Feature gates.
    pub gates: Gates,
    /// Whether the client can connect with the channel credentials `tls` (gRFC A65).
    pub tls: bool,
    /// Whether the client can connect with the channel credentials `google_default`.
    pub google_default: bool,
}

impl Default for BootstrapOptions {
    fn default() -> Self {
        Self { gates: Gates::default(), tls: true, google_default: cfg!(feature = "google-default") }
    }
}

impl BootstrapOptions {
    /// Sets the feature gates.
    #[must_use]
    pub fn with_gates(mut self, gates: Gates) -> Self {
        self.gates = gates;
        self
    }

    /// The supported types of `channel_creds`.
    pub(super) fn channel_creds(&self) -> Vec<&'static str> {
        let all = [("insecure", true), ("tls", self.tls), ("google_default", self.google_default)];
        all.into_iter().filter_map(|(name, supported)| supported.then_some(name)).collect()
    }
}
