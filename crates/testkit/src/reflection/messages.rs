//! The messages of server reflection that describe services; those about extensions are left out.

/// A request of the stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReflectionRequest {
    /// The host that is asked.
    #[prost(string, tag = "1")]
    pub host: String,
    /// The question.
    #[prost(oneof = "MessageRequest", tags = "3, 4, 7")]
    pub message_request: Option<MessageRequest>,
}

/// A question.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MessageRequest {
    /// The file of this name.
    #[prost(string, tag = "3")]
    FileByFilename(String),
    /// The file that defines this service, method or message, and those that it imports.
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    /// The names of all services; the text has no meaning.
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// A response of the stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReflectionResponse {
    /// The host of the request.
    #[prost(string, tag = "1")]
    pub valid_host: String,
    /// The request.
    #[prost(message, optional, tag = "2")]
    pub original_request: Option<ReflectionRequest>,
    /// The answer.
    #[prost(oneof = "MessageResponse", tags = "4, 6, 7")]
    pub message_response: Option<MessageResponse>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum MessageResponse {
    /// Files.
    #[prost(message, tag = "4")]
    FileDescriptors(FileDescriptorResponse),
    /// Services.
    #[prost(message, tag = "6")]
    Services(ListServicesResponse),
    /// The question has no answer.
    #[prost(message, tag = "7")]
    Error(ErrorResponse),
}

/// Files.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FileDescriptorResponse {
    /// Encoded `FileDescriptorProto` messages.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub file_descriptor_proto: Vec<Vec<u8>>,
}

/// Services.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListServicesResponse {
    /// The services.
    #[prost(message, repeated, tag = "1")]
    pub service: Vec<ServiceResponse>,
}

/// A service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ServiceResponse {
    /// Its full name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// An error.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ErrorResponse {
    /// The number of a gRPC status code.
    #[prost(int32, tag = "1")]
    pub error_code: i32,
    /// The message.
    #[prost(string, tag = "2")]
    pub error_message: String,
}
