//! The field of contestants: who takes part, how each is built and started, and what they run against.

mod contestant;
mod process;
mod scene;
mod tools;

pub(crate) use contestant::{Contestant, Running};
pub(crate) use process::Process;
pub(crate) use scene::{Backends, Scene, live_endpoints, spare_endpoints};
pub(crate) use tools::Tools;
