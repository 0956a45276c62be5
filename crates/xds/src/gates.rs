//! Experimental behaviour that gRFCs put behind environment variables.

/// The state of all feature gates. By default all are closed; a channel builder without gates uses those of the
/// environment ([`Gates::from_env`]).
///
/// ```
/// # use proxyless_xds::Gates;
/// let mut gates = Gates::from_env();
/// gates.data_error_handling = true;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gates {
    /// `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE` (gRFC A99).
    pub aggregate_cluster_resource: bool,
    /// `GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT` (gRFC A75).
    pub aggregate_cluster_backward_compat: bool,
    /// `GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING` (gRFC A88).
    pub data_error_handling: bool,
    /// `GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE` (gRFC A81).
    pub authority_rewrite: bool,
    /// `GRPC_XDS_ENDPOINT_HASH_KEY_BACKWARD_COMPAT` (gRFC A76).
    pub endpoint_hash_key_backward_compat: bool,
    /// `GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION` (gRFC A85).
    pub orca_lrs_propagation: bool,
    /// `GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS` (gRFC A97).
    pub bootstrap_call_creds: bool,
    /// `GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS` (gRFC A82).
    pub system_root_certs: bool,
    /// `GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE` (gRFC A87).
    pub mtls_spiffe: bool,
    /// `GRPC_EXPERIMENTAL_XDS_SNI` (gRFC A101).
    pub sni: bool,
    /// `GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT` (gRFC A86).
    pub http_connect: bool,
    /// `GRPC_EXPERIMENTAL_XDS_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING` (gRFC A105).
    pub connection_scaling: bool,
}

impl Gates {
    /// Reads the gates from the environment variables of the fields. Only `true` (in any case) opens a gate (A75-14,
    /// A75-15).
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`Self::from_env`]; `variable` looks a variable up.
    #[doc(hidden)]
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let open = |name| variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Self {
            aggregate_cluster_resource: open("GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE"),
            aggregate_cluster_backward_compat: open("GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"),
            data_error_handling: open("GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING"),
            authority_rewrite: open("GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"),
            endpoint_hash_key_backward_compat: open("GRPC_XDS_ENDPOINT_HASH_KEY_BACKWARD_COMPAT"),
            orca_lrs_propagation: open("GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION"),
            bootstrap_call_creds: open("GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS"),
            system_root_certs: open("GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS"),
            mtls_spiffe: open("GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE"),
            sni: open("GRPC_EXPERIMENTAL_XDS_SNI"),
            http_connect: open("GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT"),
            connection_scaling: open("GRPC_EXPERIMENTAL_XDS_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gate_has_its_own_variable() {
        let open = |name: &'static str| {
            Gates::from_variables(move |variable| (variable == name).then(|| "true".to_owned()))
        };
        let closed = Gates::default();
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE"),
            Gates { aggregate_cluster_resource: true, ..closed }
        );
        assert_eq!(
            open("GRPC_XDS_AGGREGATE_CLUSTER_BACKWARD_COMPAT"),
            Gates { aggregate_cluster_backward_compat: true, ..closed }
        );
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING"),
            Gates { data_error_handling: true, ..closed }
        );
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE"),
            Gates { authority_rewrite: true, ..closed }
        );
        assert_eq!(
            open("GRPC_XDS_ENDPOINT_HASH_KEY_BACKWARD_COMPAT"),
            Gates { endpoint_hash_key_backward_compat: true, ..closed }
        );
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_ORCA_LRS_PROPAGATION"),
            Gates { orca_lrs_propagation: true, ..closed }
        );
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS"),
            Gates { bootstrap_call_creds: true, ..closed }
        );
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS"),
            Gates { system_root_certs: true, ..closed }
        );
        assert_eq!(open("GRPC_EXPERIMENTAL_XDS_MTLS_SPIFFE"), Gates { mtls_spiffe: true, ..closed });
        assert_eq!(open("GRPC_EXPERIMENTAL_XDS_SNI"), Gates { sni: true, ..closed });
        assert_eq!(open("GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT"), Gates { http_connect: true, ..closed });
        assert_eq!(
            open("GRPC_EXPERIMENTAL_XDS_MAX_CONCURRENT_STREAMS_CONNECTION_SCALING"),
            Gates { connection_scaling: true, ..closed }
        );
    }

    #[test]
    fn a75_14_a75_15_only_true_opens_a_gate() {
        let gates = |value: &str| Gates::from_variables(|_| Some(value.to_owned()));
        for value in ["true", "TRUE", "True"] {
            assert!(gates(value).aggregate_cluster_backward_compat, "{value}");
        }
        for value in ["", "1", "yes", "false", " true"] {
            assert_eq!(gates(value), Gates::default(), "{value}");
        }
        assert_eq!(Gates::from_variables(|_| None), Gates::default());
    }
}
