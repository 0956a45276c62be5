//! Trace contexts in the metadata of requests (A72).

mod metadata;
mod trace_bin;

pub use metadata::{MetadataExtractor, MetadataInjector};
pub use trace_bin::GrpcTraceBinPropagator;

/// The header of [`GrpcTraceBinPropagator`].
const GRPC_TRACE_BIN: &str = "grpc-trace-bin";
