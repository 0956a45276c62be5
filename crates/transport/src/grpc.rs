//! What raw-bytes gRPC streams need: message framing, statuses, and the tables of codes.

pub use codes::{code_of_http_status, code_of_reset};
pub use framing::{MessageReader, frame};
pub use status::Status;

mod codes;
mod framing;
mod status;
