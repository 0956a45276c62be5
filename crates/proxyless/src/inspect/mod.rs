//! Inspection of running clients and channels, as shown by the admin services (`proxyless-admin`) and the command line.
//!
//! The only cost for an RPC is the count of its end: reports are built by the drivers, between two events, on request.

mod channels;
mod clients;
mod process;

pub use channels::{CallReport, ChannelReport, ConnectionReport, Event, Severity, SocketReport};
pub use clients::ClientDump;
pub use process::ProcessReport;
pub use proxyless_balancer::api::{
    CallCounts, ChildNode, Detail, EndpointNode, Fields, Line, PolicyNode, StateChange,
};
pub use proxyless_mesh::channel_core::{ChannelTree, ClusterShare, RouteNode};
pub use proxyless_sans_io::Time;
pub use proxyless_xds::client::{ErrorDump, RawResource, ResourceDump, ResourceStatus, UpdateCounts};
pub use proxyless_xds::resource::ResourceType;
