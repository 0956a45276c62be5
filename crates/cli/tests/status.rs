//! `proxyless status` as a program, against a running client.

use std::io::{BufRead as _, BufReader};
use std::process::Output;
use std::time::Duration;

use proxyless::{Bootstrap, ClientPool, XdsChannel};
use proxyless_admin::{Admin, AdminServer};
use proxyless_testkit::echo::{EchoClient, EchoRequest};
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, CDS, ControlPlane, EDS};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A client of one cluster, and its admin port.
struct Rig {
    plane: ControlPlane,
    backend: Backend,
    channel: XdsChannel,
    admin: AdminServer,
}

impl Rig {
    async fn start() -> Result<Self, Box<dyn std::error::Error>> {
        let backend = Backend::start("a").await?;
        let plane = ControlPlane::start().await?;
        plane.set_all([
            listener("greeter", "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&backend]]).into(),
        ]);
        proxyless_admin::collect_metrics();
        let pool = ClientPool::new();
        let channel = XdsChannel::builder("xds:///greeter")
            .bootstrap(Bootstrap::from_json(&plane.bootstrap_json())?)
            .client_pool(pool.clone())
            .resource_timeout(Duration::from_millis(100))
            .build()?;
        let admin = Admin::default().client_pool(pool).serve(0).await?;
        Ok(Self { plane, backend, channel, admin })
    }

    async fn rpc(&self) -> Result<(), tonic::Status> {
        EchoClient::new(self.channel.clone()).unary(EchoRequest::new("hello")).await.map(drop)
    }

    async fn status(&self, arguments: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
        let address = self.admin.address().to_string();
        let output = run(&address, arguments).await?;
        let text = String::from_utf8(output.stdout)?;
        assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!text.contains('\x1b'), "colours are for terminals");
        Ok(text)
    }
}

async fn run(address: &str, arguments: &[&str]) -> std::io::Result<Output> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proxyless"));
    command.arg("status").arg(address).args(arguments);
    tokio::task::spawn_blocking(move || command.output()).await.map_err(std::io::Error::other)?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_trees_and_contents_are_shown() -> TestResult {
    let rig = Rig::start().await?;
    assert!(rig.status(&[]).await?.contains("no xDS client"));
    rig.rpc().await?;
    let table = rig.status(&[]).await?;
    assert!(table.contains("node testkit-node"), "{table}");
    assert_eq!(table.matches("ACKED").count(), 4, "{table}");

    let tree = rig.status(&["--tree"]).await?;
    for part in [
        "xds:///greeter READY calls: 1 succeeded, 0 failed, 0 in flight",
        "any path → cluster",
        "round_robin READY",
    ] {
        assert!(tree.contains(part), "{part} is missing in {tree}");
    }
    assert!(tree.contains(&format!("{} READY ok=1", rig.backend.address())), "{tree}");

    let content = rig.status(&["--resource", "greeter"]).await?;
    let content: serde_json::Value = serde_json::from_str(&content)?;
    assert_eq!(content["client_status"], "ACKED");
    assert!(content["xds_config"]["@type"].as_str().is_some_and(|url| url.ends_with("Listener")));
    // The cluster and its endpoints have the same name.
    let both: serde_json::Value = serde_json::from_str(&rig.status(&["--resource", "cluster"]).await?)?;
    assert_eq!(both.as_array().map(Vec::len), Some(2));

    let all: serde_json::Value = serde_json::from_str(&rig.status(&["--json"]).await?)?;
    assert_eq!(all[0]["generic_xds_configs"].as_array().map(Vec::len), Some(4));
    let trees: serde_json::Value = serde_json::from_str(&rig.status(&["--tree", "--json"]).await?)?;
    assert_eq!(trees[0]["target"], "xds:///greeter");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a27_57_a50_a75_24_load_detection_and_sessions_are_shown() -> TestResult {
    let rig = Rig::start().await?;
    let detection = outlier_detection(Duration::from_secs(60), Duration::from_secs(60));
    rig.plane.set_all([
        listener_with("greeter", &connection_manager("route").filter(stateful_session("sid"))).into(),
        eds_cluster("cluster").report_load().outlier_detection(detection).into(),
    ]);
    rig.rpc().await?;
    rig.backend.fail_with(tonic::Code::Internal);
    rig.rpc().await.unwrap_err();
    let tree = rig.status(&["--tree"]).await?;
    for part in [
        "ejections=0 endpoints_ejected=0",
        "sweep: next in ",
        "load region / priority-0: issued 2, succeeded 1, failed 1, in progress 0",
        "idleTimeout=3600s",
        "overrideHostStatus=[UNKNOWN, HEALTHY]",
        "kept_for_sessions=0",
    ] {
        assert!(tree.contains(part), "{part} is missing in {tree}");
    }
    let session = format!("session {}: state READY, health UNKNOWN, last used ", rig.backend.address());
    assert!(tree.contains(&session), "{tree}");
    let json = rig.status(&["--tree", "--json"]).await?;
    assert!(json.contains(r#""kind": "session""#) || json.contains(r#""kind":"session""#), "{json}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_endpoints_are_diagnosed() -> TestResult {
    let rig = Rig::start().await?;
    rig.plane.remove(EDS, "cluster");
    rig.rpc().await.unwrap_err();
    let table = rig.status(&[]).await?;
    let line = table.lines().find(|line| line.contains("DOES_NOT_EXIST")).ok_or("no such line")?;
    assert!(line.starts_with("ClusterLoadAssignment  cluster"), "{table}");
    let tree = rig.status(&["--tree"]).await?;
    assert!(tree.contains("ClusterLoadAssignment cluster: does not exist"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_cluster_is_diagnosed() -> TestResult {
    let rig = Rig::start().await?;
    let mut bad = eds_cluster("cluster");
    bad.eds_cluster_config = None;
    rig.plane.set(bad);
    rig.rpc().await.unwrap_err();
    let table = rig.status(&[]).await?;
    assert!(table.contains("NACKED") && table.contains("eds_cluster_config"), "{table}");
    assert!(table.contains(&format!("version {}, ", rig.plane.version(CDS))), "{table}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_name_is_diagnosed() -> TestResult {
    let rig = Rig::start().await?;
    rig.plane.set(logical_dns_cluster("cluster", "no-such-host.invalid", 80));
    rig.rpc().await.unwrap_err();
    let tree = rig.status(&["--tree"]).await?;
    assert!(tree.contains("no-such-host.invalid"), "{tree}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_without_an_admin_server_are_reported() -> TestResult {
    let refused = |output: Output| {
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr)
    };
    let backend = Backend::start("a").await?;
    let address = backend.address().to_string();
    let error = refused(run(&address, &[]).await?)?;
    assert!(error.contains("is a gRPC server without admin services"), "{error}");
    let error = refused(run(&address, &["--tree"]).await?)?;
    assert!(error.contains("not an admin port of proxyless"), "{error}");
    let dead = proxyless_testkit::dead_address()?;
    let error = refused(run(&dead.address().to_string(), &[]).await?)?;
    assert!(error.contains("cannot connect to"), "{error}");
    let error = refused(run("19000", &[]).await?)?;
    assert!(error.contains("an address has a port"), "{error}");

    let rig = Rig::start().await?;
    let address = rig.admin.address().to_string();
    let error = refused(run(&address, &["--resource", "nothing"]).await?)?;
    assert!(error.contains(r#"no resource named "nothing""#), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_from_the_control_plane_cannot_steer_the_terminal() -> TestResult {
    let rig = Rig::start().await?;
    let evil = "c\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}";
    rig.plane.set_all([simple_route_config("route", evil).into(), eds_cluster(evil).into()]);
    let mut bad = eds_cluster(evil);
    bad.eds_cluster_config = None;
    rig.plane.set(bad);
    rig.rpc().await.unwrap_err();
    for arguments in [&[][..], &["--tree"], &["--json"], &["--tree", "--json"], &["--resource", evil]] {
        let text = rig.status(arguments).await?;
        assert!(text.contains("owned"), "{arguments:?}: {text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{arguments:?}: {text:?}");
        assert!(!text.contains('\u{202e}'), "{arguments:?}: {text:?}");
    }
    let missing = run(&rig.admin.address().to_string(), &["--resource", "\u{1b}[2J"]).await?;
    assert!(!String::from_utf8(missing.stderr)?.contains('\u{1b}'));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looks_into_a_pipe_are_separated_and_end_with_their_reader() -> TestResult {
    let rig = Rig::start().await?;
    rig.rpc().await?;
    let address = rig.admin.address().to_string();
    let (text, code) = tokio::task::spawn_blocking(move || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proxyless"));
        command.args(["status", &address, "--watch"]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn()?;
        let mut lines =
            BufReader::new(child.stdout.take().ok_or_else(|| std::io::Error::other("no stdout"))?).lines();
        let mut text = Vec::new();
        while text.iter().filter(|line: &&String| line.starts_with("----")).count() < 2 {
            text.push(lines.next().unwrap_or_else(|| Err(std::io::Error::other("ended")))?);
        }
        // The reader goes: the next look has nobody to write to.
        drop(lines);
        Ok::<_, std::io::Error>((text, child.wait()?.code()))
    })
    .await??;
    assert_eq!(code, Some(0));
    assert!(text[0].contains("pid ") && text[0].contains("proxyless "), "{text:?}");
    assert_eq!(text.iter().filter(|line| line.starts_with("xDS client")).count(), 2, "{text:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_has_sparklines_of_each_cluster() -> TestResult {
    let rig = Rig::start().await?;
    rig.rpc().await?;
    let address = rig.admin.address().to_string();
    for arguments in [&[][..], &["--tree"]] {
        let (address, arguments) = (address.clone(), arguments.to_vec());
        let watch = tokio::task::spawn_blocking(move || {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proxyless"));
            command
                .args(["status", &address, "--watch"])
                .args(arguments)
                .stdout(std::process::Stdio::piped());
            let mut child = command.spawn()?;
            let lines = child.stdout.take().ok_or_else(|| std::io::Error::other("no stdout"))?;
            let drawn = |line: &String| line.starts_with("cluster ") && line.contains('█');
            let line = BufReader::new(lines).lines().map_while(Result::ok).find(drawn);
            // The reader is gone: the program ends.
            Ok::<_, std::io::Error>((line, child.wait()?.code()))
        });
        // RPCs go on until a sparkline shows them.
        while !watch.is_finished() {
            rig.rpc().await?;
            tokio::task::yield_now().await;
        }
        let (line, code) = watch.await??;
        let line = line.ok_or("no sparkline")?;
        assert!(line.contains("/s") && !line.contains('\x1b'), "{line}");
        assert_eq!(code, Some(0));
    }
    let once = rig.status(&[]).await?;
    assert!(!once.contains('▁'), "{once}");
    Ok(())
}
