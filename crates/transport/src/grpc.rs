//! gRPC for raw byte streams: message framing, statuses, and code tables.

pub use codes::code_of_reset;
pub use framing::{MessageReader, frame, frame_parts};
pub use status::Status;

mod codes;
mod framing;
mod status;
