//! Inspection of running clients and channels, as shown by the admin services (`proxyless-admin`) and the command line.
//!
//! [`XdsChannel::describe`](crate::XdsChannel::describe) describes one channel,
//! [`ClientPool::channels`](crate::ClientPool::channels) all of them, and
//! [`ClientPool::clients`](crate::ClientPool::clients) the xDS clients with their resources.
//! [`XdsChannel::explain`](crate::XdsChannel::explain) says where a call would go, and why. A view is built on request
//! by the task that owns the facts, between two events: an RPC pays for one counter only.
//!
//! ```no_run
//! # async fn example() {
//! for channel in proxyless::ClientPool::global().channels().await {
//!     println!("{} is {}, {} RPCs in flight", channel.target, channel.state, channel.calls.in_flight());
//!     println!("{}", channel.tree); // routes, policies and endpoints, drawn as a tree
//! }
//! # }
//! ```

mod channels;
mod clients;
pub(crate) mod explain;
mod process;
mod since_1970;
mod tls;

pub use channels::{
    CallsView, ChannelView, Event, EventKind, FaultsView, Severity, SocketView, SubchannelView,
};
pub use clients::{ClientView, ResourceErrorView, ResourceView, UpdatesView};
pub use explain::{
    Candidate, CircuitBreakerView, Decision, DecisionLevel, DropView, ExplainRequest, Explanation, Outcome,
    RetryView,
};
pub use process::ProcessView;
pub use proxyless_balancer::api::{
    CallCounts, ChildPolicyView, Detail, EndpointView, Fields, Line, PolicyView, StateChange,
};
pub use proxyless_mesh::channel_core::{ClusterShare, RouteView, TreeView};
pub use proxyless_xds::client::{RawResource, ResourceStatus};
pub use tls::{CertificateView, Expiry, TlsView};
