//! Server reflection, `grpc.reflection.v1` and its predecessor `v1alpha`: servers for tests, and the messages, which
//! are the same in both.
//!
//! Backends with the [echo service](crate::echo) serve both versions.

mod messages;
mod server;

pub use messages::{
    ErrorResponse, FileDescriptorResponse, ListServicesResponse, MessageRequest, MessageResponse,
    ReflectionRequest, ReflectionResponse, ServiceResponse,
};
pub use server::{ReflectionV1, ReflectionV1Alpha};

/// The path of the method in version 1.
pub const V1: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The path of the method in the version before.
pub const V1_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
