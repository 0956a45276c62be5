//! Load balancing policies of your own (gRFC A52): how to write one, and the [`Registry`] by which channels know it.
//!
//! # The three parts
//! 1. **A configuration**: a type that the control plane's JSON is parsed into, with the macro
//!    [`policy_config`], which says the policy's name and how to build it.
//! 2. **A policy**: decides which connections to hold. Most implement one of two helpers instead of [`Policy`] itself:
//!    * [`Layer`]: a policy with one child, such as one that filters endpoints and leaves the picking to round_robin.
//!    * [`Balance`]: a policy that connects to all its endpoints and chooses one of the READY ones for each RPC.
//! 3. **A picker** (for a [`Balance`]): chooses the endpoint of an RPC. It runs in the caller's task for every attempt:
//!    it should take no lock and allocate nothing.
//!
//! A cluster uses the policy when its `load_balancing_policy` has a `TypedStruct` (`xds.type.v3` or `udpa.type.v1`)
//! with the policy's name as its type, in any place where one of gRPC's own policies can be: inside `wrr_locality`, where
//! it gets the endpoints of one locality; at the top, where it gets those of a priority in one list; or in `childPolicy`
//! of another policy. The first policy of a list that the client supports is used, so a control plane can list
//! `round_robin` after it for clients that do not have it.
//!
//! # An example
//! This policy uses the first few endpoints only, in the order of their addresses. It is complete, and runs with the
//! control plane and the backends of [`proxyless-testkit`](https://docs.rs/proxyless-testkit); the example
//! `custom_policy` has a policy with a picker of its own.
//!
//! ```
//! use std::sync::Arc;
//!
//! use proxyless::XdsChannel;
//! use proxyless::policy::{
//!     Below, ConfigError, Cx, Endpoints, InvalidConfig, Layer, Layered, PolicyConfig, Registry, Update, config_of,
//!     policy_config,
//! };
//!
//! const NAME: &str = "myorg.FirstEndpoints";
//!
//! /// The configuration: `{"count": 2, "childPolicy": [{"round_robin": {}}]}`.
//! #[derive(Debug)]
//! struct FirstEndpointsConfig {
//!     count: usize,
//!     child: Arc<dyn PolicyConfig>,
//! }
//!
//! // An update with an equal configuration and the same endpoints is not passed to the policy.
//! impl PartialEq for FirstEndpointsConfig {
//!     fn eq(&self, other: &Self) -> bool {
//!         self.count == other.count && *self.child == *other.child
//!     }
//! }
//!
//! policy_config!(FirstEndpointsConfig, NAME, Layered::<FirstEndpoints>::default());
//!
//! #[derive(Default)]
//! struct FirstEndpoints;
//!
//! impl Layer for FirstEndpoints {
//!     fn update(&mut self, update: &Update, below: &mut Below, cx: &mut dyn Cx) -> Result<(), ConfigError> {
//!         let config: &FirstEndpointsConfig = config_of(NAME, &update.config)?;
//!         let mut endpoints = Vec::new();
//!         update.endpoints.flatten(&mut |endpoint| endpoints.push(Arc::clone(endpoint)));
//!         endpoints.sort_by(|a, b| a.addresses.cmp(&b.addresses));
//!         endpoints.truncate(config.count);
//!         let child = Update {
//!             config: Arc::clone(&config.child),
//!             endpoints: Endpoints::List(endpoints.into()),
//!             ..update.clone()
//!         };
//!         below.update(&child, self, cx)
//!     }
//! }
//!
//! /// One registry for all channels of the process.
//! fn registry() -> Registry {
//!     Registry::new().register(NAME, |config| {
//!         let count = config.json().get("count").and_then(|count| count.as_u64()).filter(|&count| count > 0);
//!         let count = count.ok_or_else(|| InvalidConfig::at("count", "must be a whole number greater than 0"))?;
//!         Ok(FirstEndpointsConfig { count: count as usize, child: config.child("childPolicy")? })
//!     })
//! }
//!
//! # use proxyless::Bootstrap;
//! # use proxyless_testkit::echo::{EchoClient, EchoRequest};
//! # use proxyless_testkit::resources::*;
//! # use proxyless_testkit::{Backend, ControlPlane};
//! # use serde_json::json;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut backends = [Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?];
//! # backends.sort_by_key(Backend::address);
//! # let [first, second, third] = &backends;
//! # let control_plane = ControlPlane::start().await?;
//! # control_plane.set_all([
//! #     listener("greeter", "routes").into(),
//! #     simple_route_config("routes", "cluster").into(),
//! #     priorities("cluster", [[third, second, first]]).into(),
//! # ]);
//! // The control plane does this.
//! let config = json!({"count": 2, "childPolicy": [{"round_robin": {}}]});
//! control_plane.set(eds_cluster("cluster").lb_policy(custom_policy(NAME, &config)));
//!
//! # let bootstrap = Bootstrap::from_json(&control_plane.bootstrap_json())?;
//! let channel = XdsChannel::builder("xds:///greeter").bootstrap(bootstrap).policies(registry()).build()?;
//! # for _ in 0..10 {
//! #     EchoClient::new(channel.clone()).unary(EchoRequest::new("hello")).await?;
//! # }
//! # assert_eq!((first.count() + second.count(), third.count()), (10, 0));
//! # let tree = channel.tree().await.ok_or("the channel has ended")?.to_string();
//! # assert!(tree.contains(NAME), "{tree}");
//! # Ok(())
//! # }
//! ```
//!
//! # Bad configurations
//! The parser is called with each new version of a Cluster. If it returns [`InvalidConfig`], the client rejects the
//! resource: the control plane gets a NACK with the path of the configuration and the parser's reasons, CSDS shows it, and
//! the last valid version stays in use. So everything that can be checked belongs into the parser;
//! [`Policy::update`] can fail too, but then RPCs may fail.
//!
//! A name that is taken by one of gRPC's policies, or registered twice, is an error of
//! [`XdsChannelBuilder::build`](crate::XdsChannelBuilder::build).
//!
//! # Rules of policies
//! - Policies run in the task of their channel and own no task: time comes from [`Cx::now`], timers from
//!   [`Cx::set_timer`], randomness from [`Cx::rng`]. They must not block.
//! - A policy never sees its parent. It publishes its state and picker with [`Cx::publish`]; after an update it must have
//!   published something.
//! - Events come down the tree along a [`TreePath`]: an event whose path goes on is for the child with that index
//!   ([`Children::at`]); [`Layer`] and [`Balance`] do this themselves.
//! - A picker has no way to its policy but a [`Signal`], which it raises, for example to leave IDLE.
//! - [`Policy::describe`] shows children, endpoints and counters in the tree view of the channel; the configuration is
//!   shown by the optional fourth argument of [`policy_config`]. [`PolicyEvent::Noted`] adds
//!   a decision to the channel's events.
//! - A picker that panics fails its RPC with INTERNAL; any other panic of a policy restarts the task of its channel,
//!   after a pause that grows from a second to a minute, and RPCs fail meanwhile.
//!
//! The types of this module change with the needs of policies: while the version of the crate begins with 0, a minor
//! version may change them.

pub use proxyless_balancer::api::{
    ActualHost, BackendMetrics, Balance, Balanced, Below, CallAttributes, CallCounter, CallOutcome,
    CallTracker, Child, ChildCx, ChildEntry, ChildIndex, ChildOutput, Children, ClusterId, Code, ConfigError,
    ConnectionSlot, ConnectivityState, Cx, Deferred, Endpoint, EndpointExtras, EndpointHealth, Endpoints,
    FailPicker, Failures, Group, HandleId, HostWait, Layer, Layered, Locality, OverrideHost, PermitSource,
    Pick, PickArgs, PickError, PickPermit, PickResult, PickTarget, Picker, Policy, PolicyConfig, PolicyEvent,
    QueuePicker, ReadyEndpoint, Reresolution, Security, Signal, SignalRaiser, StripedTarget, StripedTracker,
    SubchannelEvent, SubchannelHandle, SubchannelSpec, TargetRef, Timer, TrackerSlot, Trackers, TreeEvent,
    TreePath, TreePathBuf, Update, config_of,
};
pub use proxyless_balancer::policies::pick_first::PickFirstConfig;
pub use proxyless_balancer::policies::round_robin::RoundRobinConfig;
pub use proxyless_balancer::policy_config;
pub use proxyless_mesh::policies::custom::{ConfigReader, InvalidConfig, Registry, RegistryError};
pub use proxyless_sans_io::{Rng, Time};

pub use crate::inspect::{ChildPolicyView, Detail, EndpointView, Fields, PolicyView};
