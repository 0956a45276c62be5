//! A load balancing policy of the application's own (gRFC A52): `cargo run -p proxyless --example custom_policy`.
//!
//! The policy `myorg.Sticky` keeps each user on one backend: it hashes a header of the RPC, whose name is in the
//! configuration. A control plane and three backends run inside the process. The program prints who is served where, what
//! happens when a backend dies, and what the control plane hears of a configuration that the policy does not accept.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use proxyless::policy::{
    Balance, Balanced, ConfigReader, Cx, Fields, InvalidConfig, PickArgs, PickResult, Picker, ReadyEndpoint,
    Registry, policy_config,
};
use proxyless::{Bootstrap, XdsChannel};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane};
use serde::Deserialize;
use serde_json::json;
use tonic::{Code, Request, Status};

const NAME: &str = "myorg.Sticky";

/// The configuration, after its JSON has been checked.
#[derive(Clone, Debug, PartialEq)]
struct StickyConfig {
    header: HeaderName,
}

// The name, how to build the policy, and what the tree view shows of the configuration.
policy_config!(StickyConfig, NAME, Balanced::<Sticky>::default(), |config| {
    Fields::from_iter([("header", json!(config.header.as_str()))])
});

/// The parser: the control plane sends `{"header": "x-user"}`. Its errors are sent back in a NACK.
fn parse(config: &mut ConfigReader<'_>) -> Result<StickyConfig, InvalidConfig> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Json {
        header: String,
    }

    let Json { header } = config.read()?;
    let header = HeaderName::try_from(&header)
        .map_err(|_| InvalidConfig::at("header", format!("{header:?} is not a header name")))?;
    Ok(StickyConfig { header })
}

/// The policy. `Balanced` connects to all endpoints; this is called whenever the READY ones have changed.
#[derive(Default)]
struct Sticky;

impl Balance for Sticky {
    const NAME: &'static str = NAME;
    type Config = StickyConfig;

    fn picker(
        &mut self,
        config: &StickyConfig,
        ready: Vec<ReadyEndpoint>,
        _: &mut dyn Cx,
    ) -> Arc<dyn Picker> {
        Arc::new(StickyPicker { header: config.header.clone(), ready })
    }
}

/// The picker, which all RPCs use at once: it neither locks nor allocates.
struct StickyPicker {
    header: HeaderName,
    ready: Vec<ReadyEndpoint>,
}

impl Picker for StickyPicker {
    fn pick(&self, args: &mut PickArgs<'_>) -> PickResult {
        let user = args.headers.get(&self.header);
        // Rendezvous hashing: a backend that dies moves its own users only.
        let score = |ready: &&ReadyEndpoint| {
            let mut hasher = DefaultHasher::new();
            (user.map(http::HeaderValue::as_bytes), &ready.endpoint.addresses).hash(&mut hasher);
            hasher.finish()
        };
        match self.ready.iter().max_by_key(score) {
            Some(chosen) => chosen.pick(args),
            None => PickResult::Queue,
        }
    }
}

const USERS: [&str; 8] = ["ann", "bob", "cleo", "dan", "eve", "finn", "gus", "hana"];

/// The backend of each user.
type Seats = BTreeMap<&'static str, String>;

/// An RPC of this user. Returns the backend that answered.
async fn call(channel: &XdsChannel, user: &'static str) -> Result<String, Status> {
    let mut request = Request::new(EchoRequest::new("hello"));
    request.set_timeout(Duration::from_secs(5));
    request.metadata_mut().insert("x-user", user.parse().expect("ASCII"));
    Ok(EchoClient::new(channel.clone()).unary(request).await?.into_inner().backend)
}

/// Calls until every user was served; an RPC that was on its way to a dying backend may fail.
async fn seats(channel: &XdsChannel) -> Result<Seats, Status> {
    let mut seats = Seats::new();
    for user in USERS {
        let backend = loop {
            match call(channel, user).await {
                Err(status) if status.code() == Code::Unavailable => tokio::task::yield_now().await,
                answer => break answer?,
            }
        };
        seats.insert(user, backend);
    }
    Ok(seats)
}

/// What the program observed.
struct Observed {
    all: Seats,
    without_one: Seats,
    died: String,
    nack: String,
    after_nack: Seats,
    tree: String,
}

async fn run() -> Result<Observed, Box<dyn Error>> {
    let backends = [Backend::start("a").await?, Backend::start("b").await?, Backend::start("c").await?];
    let control_plane = ControlPlane::start().await?;
    let sticky = |config| eds_cluster("cluster").lb_policy(wrr_locality(custom_policy(NAME, &config)));
    control_plane.set_all([
        listener("shop", "routes").into(),
        simple_route_config("routes", "cluster").into(),
        sticky(json!({"header": "x-user"})).into(),
        priorities("cluster", [backends.iter().collect::<Vec<_>>()]).into(),
    ]);

    // All that an application needs: one registry for all its channels.
    let registry = Registry::new().register(NAME, parse);
    let channel = XdsChannel::builder("xds:///shop")
        .bootstrap(Bootstrap::from_json(&control_plane.bootstrap_json())?)
        .policies(registry)
        .build()?;

    channel.ready_within(Duration::from_secs(10)).await?;
    for backend in &backends {
        backend.wait_connections(1).await?;
    }
    // The policy is READY with its first connection; users have their seats when all are in the picker.
    let mut all = seats(&channel).await?;
    loop {
        let again = seats(&channel).await?;
        let tree = channel.describe().await.ok_or("the channel has ended")?;
        let ready =
            |view: &proxyless::inspect::SubchannelView| view.state == proxyless::ConnectivityState::Ready;
        if again == all && tree.subchannels.iter().filter(|view| ready(view)).count() == backends.len() {
            break;
        }
        all = again;
    }

    let tree = channel.tree().await.ok_or("the channel has ended")?.to_string();

    // A configuration that the parser refuses: the control plane hears why, and the last good one stays in use.
    control_plane.set(sticky(json!({"header": "not a header"})));
    let nack = control_plane.wait_nack(CDS).await?;
    let nack = nack.error().map(|error| error.message.clone()).unwrap_or_default();
    let after_nack = seats(&channel).await?;

    // A backend dies: only its own users move.
    let died = all[USERS[0]].clone();
    for backend in &backends {
        if backend.name() == died {
            backend.kill().await;
        }
    }
    let without_one = seats(&channel).await?;
    Ok(Observed { all, without_one, died, nack, after_nack, tree })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let observed = run().await?;
    println!("{}", observed.tree);
    println!("every user has a backend:    {:?}", observed.all);
    println!("the NACK of a bad header:    {}", observed.nack);
    println!("users stay meanwhile:        {}", observed.after_nack == observed.all);
    println!("without backend {}:           {:?}", observed.died, observed.without_one);
    Ok(())
}

#[tokio::test]
async fn users_stay_on_their_backends() -> Result<(), Box<dyn Error>> {
    let observed = run().await?;
    assert_eq!(observed.after_nack, observed.all);
    assert!(observed.nack.contains(r#""not a header" is not a header name"#), "{}", observed.nack);
    assert!(observed.tree.contains("myorg.Sticky READY"), "{}", observed.tree);
    for (user, backend) in &observed.all {
        let now = &observed.without_one[user];
        assert_eq!(now == backend, *backend != observed.died, "{user} moved from {backend} to {now}");
    }
    Ok(())
}
