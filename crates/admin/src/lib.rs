//! The admin services of a gRPC process (gRFC A38), for processes that use [`proxyless`].
//!
//! One call serves them on a separate loopback port:
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! let admin = proxyless_admin::serve(19000).await?; // ends when dropped
//! println!("see http://{}", admin.address());
//! # Ok(())
//! # }
//! ```
//!
//! [`add_to`] adds them to the routes of an existing server instead. The services are
//!
//! * CSDS (gRFC A40): every resource of every xDS client, with its status, version, content and error;
//! * channelz (gRFC A14): channels, subchannels, sockets, calls and traces;
//! * gRPC health;
//! * `/proxyless/`: a live page of all this, and its data as JSON: `/proxyless/channels.json` (calls, routes, policy
//!   trees, connections, events), `/proxyless/resources.json`, `/proxyless/process.json` and `/proxyless/history.json`
//!   (rates, errors and latencies of the last five minutes, see [`HistoryView`]). The page also explains calls:
//!   `/proxyless/explain.json?channel=ID&path=/package.Service/Method&header=name:value` says where one would go, and
//!   why;
//! * `/metrics`, and `/proxyless/metrics` in the routes of another server: gRPC's standard metrics of the channels that were built after this call (or after [`collect_metrics`]),
//!   for Prometheus.
//!
//! Standard tools (grpcdebug, `proxyless status`) and browsers can read them. Except for metrics, RPCs pay nothing for it.
//! There is no authentication: keep the port on the loopback interface.
#![forbid(unsafe_code)]

mod admin;
mod channelz;
mod controls;
mod csds;
mod explain;
mod guard;
mod history;
mod metrics;
mod page;
mod resources;
mod timestamp;

pub use admin::{Admin, AdminServer, add_to, serve};
pub use channelz::Channelz;
#[doc(hidden)]
pub use controls::{ControlRow, Controls};
pub use csds::Csds;
pub use history::{HistoryMark, HistorySeries, HistoryView, LeftOut, MarkKind};
pub use metrics::{MetricStore, collect_metrics};
pub use resources::{ClientResources, ResourceFault, ResourceLine, UpdateLine};

/// The messages of channelz, as gRFC A14 defines them.
#[allow(missing_docs, clippy::enum_variant_names, unreachable_pub, unused_qualifications)]
pub(crate) mod channelz_proto {
    tonic::include_proto!("grpc.channelz.v1");
}
