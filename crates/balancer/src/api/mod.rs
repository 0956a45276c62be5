//! The contract between policies, the tree that runs them, and the data path.
//!
//! * A [`Policy`] has only `&mut self` and a [`Cx`]; it never sees its parent. It publishes into a slot that its parent
//!   reads *after* the call ([`Child`]), so nothing is re-entrant and no decision is made in the middle of an update.
//! * Events are passed down from the root along a [`TreePath`]: one child index per level.
//! * A policy with one child is a [`Layer`]; one with several keeps them in [`Children`]; work that many events of one
//!   input cause is [`Deferred`] to its end. A policy that picks among its endpoints is a [`Balance`].
//! * A [`Picker`] is immutable and shared with the data path: apart from the first pick of a thread, which
//!   allocates its stripes, it takes no lock and does not allocate.

mod call;
mod change;
mod child;
mod children;
mod config;
mod connection_limit;
mod connection_slot;
mod context;
mod counts;
pub(crate) mod creator_cx;
mod deferred;
mod describe;
mod detail;
mod drawing;
mod endpoint;
mod event;
mod fields;
mod handle;
mod layer;
mod lent;
mod override_host;
mod pick_error;
mod picker;
mod policy;
pub mod seconds;
mod security;
mod signal;
mod state;
mod target_ref;
mod tree_path;
mod waiting_call;

pub use crate::petiole::{Balance, Balanced, ReadyEndpoint};
pub use call::{CallOutcome, CallTicket, CallTracker, PickTarget, StripedTracker, TrackerSlot, Trackers};
pub(crate) use child::ChildIndices;
pub use child::{Child, ChildCx, ChildIndex, ChildOutput, Reresolution};
pub use children::{ChildEntry, Children};
pub use config::{ConfigError, PolicyConfig, config_of};
pub use connection_limit::ConnectionLimit;
pub use connection_slot::{ConnectionSlot, LiveConnection};
pub use context::{Cx, SubchannelSpec};
pub use counts::{CallCounter, CallCounts};
pub use deferred::Deferred;
pub use describe::{ChildPolicyView, EndpointView, PolicyView, StateChange};
pub use detail::Detail;
pub use drawing::Line;
pub use endpoint::{Endpoint, Endpoints, Group};
pub use event::PolicyEvent;
pub use fields::Fields;
pub use handle::{HandleId, Releases, SubchannelHandle, Timer};
pub use layer::{Below, Layer, Layered};
pub use lent::Lent;
pub use override_host::{ActualHost, Failures, HostWait, OverrideHost};
pub use pick_error::PickError;
pub use picker::{
    CallAttributes, ClusterId, FailPicker, PermitSource, Pick, PickArgs, PickPermit, PickPurpose, PickResult,
    Picker, QueuePicker,
};
pub use policy::{Policy, SubchannelEvent, TreeEvent, Update};
#[cfg(proxyless_loom)]
pub use proxyless_sans_io::stripes::use_stripe;
pub use proxyless_sans_io::stripes::{LazyStriped, Padded, Striped};
pub use proxyless_sans_io::values::{BackendMetrics, Code, EndpointExtras, EndpointHealth, Locality};
pub use security::Security;
pub use signal::{Signal, SignalQueue, SignalRaiser, Wake};
pub use state::ConnectivityState;
pub use target_ref::{StripedTarget, TargetRef};
pub use tree_path::{SharedTreePath, TreePath, TreePathBuf};
pub use waiting_call::WaitingCall;
