//! The control plane itself: what it serves, to whom, and what became of it.

mod clients;
mod delta;
mod loads;
mod plane;
mod secured;
mod serving;
mod snapshot;
mod sotw;
mod streams;
mod subscription;
#[cfg(test)]
mod tests;

pub use clients::{ClientView, TypeView};
pub use loads::LoadView;
pub use plane::{Changes, Event, Plane, TypeChanges};
pub use secured::TlsFiles;
pub use serving::Serving;
