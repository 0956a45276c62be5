//! Looking into running clients and channels: what the admin services (`proxyless-admin`) and the command line show.
//!
//! Nothing here costs an RPC anything but the count of its end: answers are made by the drivers, between two events,
//! when someone asks.

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
