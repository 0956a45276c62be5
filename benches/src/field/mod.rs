//! The contestants: how each is built and started, and the servers that they run against.

mod certificates;
mod contestant;
mod process;
mod relay;
mod scene;
mod tools;

pub(crate) use certificates::Certificates;
pub(crate) use contestant::{Contestant, Running};
pub(crate) use process::Process;
pub(crate) use relay::Relay;
pub(crate) use scene::{Backends, Scene, live_endpoints, spare_endpoints};
pub(crate) use tools::Tools;
