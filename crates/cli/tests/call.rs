//! `proxyless call` as a program, against a mesh in this process. Errors are compared word for word, with ports replaced.

use std::io::Write as _;
use std::process::{Output, Stdio};

use proxyless_testkit::echo::{EchoServer, descriptor, descriptor_set};
use proxyless_testkit::reflection::ReflectionV1Alpha;
use proxyless_testkit::resources::*;
use proxyless_testkit::{Backend, ControlPlane, dead_address};
use serde_json::Value;
use tonic::Code;
use tonic::service::Routes;

type TestResult = Result<(), Box<dyn std::error::Error>>;

const UNARY: &str = "proxyless.testkit.Echo/Unary";

/// A mesh of one cluster with two priorities.
struct Rig {
    near: Backend,
    far: Backend,
    plane: ControlPlane,
    folder: tempfile::TempDir,
}

impl Rig {
    async fn start() -> Result<Self, Box<dyn std::error::Error>> {
        Self::with(Backend::start("near").await?).await
    }

    async fn with(near: Backend) -> Result<Self, Box<dyn std::error::Error>> {
        let far = Backend::start("far").await?;
        let plane = ControlPlane::start().await?;
        plane.set_all([
            listener("greeter", "route").into(),
            simple_route_config("route", "cluster").into(),
            eds_cluster("cluster").into(),
            priorities("cluster", [[&near], [&far]]).into(),
        ]);
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("bootstrap.json"), plane.bootstrap_json())?;
        std::fs::write(folder.path().join("echo.bin"), descriptor_set())?;
        Ok(Self { near, far, plane, folder })
    }

    /// Runs `proxyless call` in a folder with `bootstrap.json` and `echo.bin`.
    async fn call(&self, arguments: &[&str], input: &str) -> Result<Ended, Box<dyn std::error::Error>> {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_proxyless"));
        command.arg("call").args(arguments).current_dir(self.folder.path());
        command.env_remove("GRPC_XDS_BOOTSTRAP").env_remove("GRPC_XDS_BOOTSTRAP_CONFIG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let input = input.to_owned();
        let output = tokio::task::spawn_blocking(move || -> std::io::Result<Output> {
            let mut child = command.spawn()?;
            // The program may not read it.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            child.wait_with_output()
        })
        .await??;
        Ok(Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Calls with the bootstrap of the mesh.
    async fn ask(&self, method: &str, arguments: &[&str]) -> Result<Ended, Box<dyn std::error::Error>> {
        let all = [&["xds:///greeter", method, "--bootstrap", "bootstrap.json"][..], arguments].concat();
        self.call(&all, "").await
    }

    /// The text with the names of servers instead of their addresses.
    fn named(&self, text: &str) -> String {
        let names =
            [(self.near.address(), "NEAR"), (self.far.address(), "FAR"), (self.plane.address(), "PLANE")];
        names.iter().fold(text.to_owned(), |text, (address, name)| text.replace(&address.to_string(), name))
    }
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The values of a stream of JSON documents.
fn values(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unary_call_prints_the_response_and_the_backend() -> TestResult {
    let rig = Rig::start().await?;
    let ended = rig.ask(UNARY, &["-d", r#"{"message": "hi"}"#, "-H", "x-user: 7"]).await?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(values(&ended.out), [serde_json::json!({"message": "hi", "backend": "near"})]);
    assert!(rig.named(&ended.err).starts_with("OK from NEAR after "), "{ended:?}");
    let calls = rig.near.calls();
    let call = calls.iter().find(|call| call.path().ends_with("/Unary")).ok_or("no call")?;
    assert_eq!(call.header("x-user"), Some("7"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_in_both_directions_take_several_messages() -> TestResult {
    let rig = Rig::start().await?;
    let repeated =
        rig.ask("proxyless.testkit.Echo/Repeat", &["-d", r#"{"message": "a", "repeat": 3}"#]).await?;
    assert_eq!(values(&repeated.out).len(), 3, "{repeated:?}");
    std::fs::write(rig.folder.path().join("data.json"), r#"{"message": "a"} {"message": "b"}"#)?;
    let joined = rig.ask("proxyless.testkit.Echo/Collect", &["-d", "@data.json"]).await?;
    assert_eq!(values(&joined.out)[0]["message"], "a b", "{joined:?}");
    let arguments = [
        "xds:///greeter",
        "proxyless.testkit.Echo.Chat",
        "--bootstrap",
        "bootstrap.json",
        "-d",
        "@-",
        "--json",
    ];
    let chat = rig.call(&arguments, "{\"message\": \"x\"}\n{\"message\": \"y\"}\n").await?;
    let document = &values(&chat.out)[0];
    assert_eq!(document["responses"][1]["message"], "y", "{chat:?}");
    assert_eq!((&document["status"]["code"], chat.code), (&Value::from("OK"), Some(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_come_from_a_descriptor_set_a_proto_file_or_old_reflection() -> TestResult {
    let routes = Routes::new(EchoServer::new("near")).add_service(ReflectionV1Alpha::new([descriptor()]));
    let rig = Rig::with(Backend::serve("near", routes).await?).await?;
    let proto = "syntax = \"proto3\"; package proxyless.testkit;
        message EchoRequest { string message = 1; } message EchoResponse { string backend = 2; }
        service Echo { rpc Unary(EchoRequest) returns (EchoResponse); }";
    std::fs::write(rig.folder.path().join("mine.proto"), proto)?;
    for arguments in [&["--descriptor-set", "echo.bin"][..], &["--proto", "mine.proto", "-I", "."], &[]] {
        let ended = rig.ask(UNARY, &[arguments, &["-d", r#"{"message": "hi"}"#]].concat()).await?;
        assert_eq!(
            (ended.code, &values(&ended.out)[0]["backend"]),
            (Some(0), &Value::from("near")),
            "{ended:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explanation_says_why_the_secondary_answers() -> TestResult {
    let rig = Rig::start().await?;
    rig.near.kill().await;
    let arguments = ["--descriptor-set", "echo.bin", "--explain"];
    let dry = rig.ask(UNARY, &[&arguments[..], &["--dry-run"]].concat()).await?;
    assert_eq!((dry.code, dry.err.as_str()), (Some(0), ""), "{dry:?}");
    let text = rig.named(&dry.out);
    for part in [
        "· priority 0 TRANSIENT_FAILURE: failed: ",
        "→ priority 1 READY: the first in order that is READY",
        "goes to FAR",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert_eq!(rig.far.count(), 0, "nothing was sent");
    let called = rig.ask(UNARY, &[&arguments[..], &["--json"]].concat()).await?;
    let document = &values(&called.out)[0];
    assert_eq!(document["explanation"]["outcome"]["address"], rig.far.address().to_string(), "{called:?}");
    assert_eq!(document["peer"], rig.far.address().to_string());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_an_exit_code() -> TestResult {
    let rig = Rig::start().await?;
    rig.near.fail_with(Code::PermissionDenied);
    let ended = rig.ask(UNARY, &["--descriptor-set", "echo.bin"]).await?;
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.err.starts_with("PERMISSION_DENIED"), "{ended:?}");
    assert!(ended.err.trim_end().ends_with("ms: the backend was told to fail"), "{ended:?}");
    Ok(())
}

/// What the user reads, word for word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_explained() -> TestResult {
    let rig = Rig::start().await?;
    let typed = |data: &'static str| vec!["--descriptor-set", "echo.bin", "-d", data];
    let cases: [(&str, Vec<&str>, &str); 9] = [
        ("Unary", vec![], "method \"Unary\" is not of the form package.Service/Method"),
        (
            "proxyless.testkit.Echo/Ping",
            vec![],
            "service proxyless.testkit.Echo has no method Ping; it has Unary, Repeat, Collect, Chat",
        ),
        (
            "other.Service/Ping",
            vec![],
            "the server has no service other.Service; it has proxyless.testkit.Echo",
        ),
        (
            "other.Service/Ping",
            vec!["--descriptor-set", "echo.bin"],
            "there is no service other.Service; known: proxyless.testkit.Echo",
        ),
        (
            UNARY,
            typed(r#"{"massage": "hi", "repeat": -1}"#),
            "-d: massage: unknown field; proxyless.testkit.EchoRequest has message, repeat; \
             repeat: out of range integral type conversion attempted",
        ),
        (
            UNARY,
            typed("{} {}"),
            "-d: proxyless.testkit.Echo.Unary takes exactly one message, but there are 2",
        ),
        (UNARY, typed("@none.json"), "data file none.json: No such file or directory (os error 2)"),
        (UNARY, vec!["-H", "nothing"], "header \"nothing\": there is no colon between name and value"),
        (
            UNARY,
            vec!["--descriptor-set", "bootstrap.json"],
            "descriptor set bootstrap.json: failed to decode file descriptor set",
        ),
    ];
    for (method, arguments, expected) in cases {
        let ended = rig.ask(method, &arguments).await?;
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
        let said = ended.err.strip_prefix("proxyless: ").ok_or("no error")?.trim_end();
        assert!(said.starts_with(expected), "{said}\nis not\n{expected}");
    }
    let ended = rig.call(&["dns:///greeter", UNARY, "--bootstrap", "bootstrap.json"], "").await?;
    assert_eq!(
        ended.err, "proxyless: target \"dns:///greeter\": not an xds URI; expected xds:///name\n",
        "{ended:?}"
    );
    let ended = rig.call(&["xds:///greeter", UNARY, "--bootstrap", "none.json"], "").await?;
    assert_eq!(ended.err, "proxyless: bootstrap file none.json: No such file or directory (os error 2)\n");
    std::fs::write(rig.folder.path().join("prose.json"), "hello")?;
    let ended = rig.call(&["xds:///greeter", UNARY, "--bootstrap", "prose.json"], "").await?;
    assert_eq!(
        ended.err,
        "proxyless: bootstrap file prose.json: not JSON: expected value at line 1 column 1\n"
    );
    let ended = rig.call(&["xds:///greeter", UNARY], "").await?;
    assert_eq!(
        ended.err,
        "proxyless: xDS bootstrap from environment: none given: set GRPC_XDS_BOOTSTRAP to a file's path, or \
         GRPC_XDS_BOOTSTRAP_CONFIG to its content, or pass --bootstrap FILE\n"
    );
    let ended = rig.ask(UNARY, &typed("{")).await?;
    assert_eq!(ended.err, "proxyless: -d: not JSON: EOF while parsing an object at line 1 column 1\n");
    let unknown = ["xds:///unknown", UNARY, "--bootstrap", "bootstrap.json", "--deadline", "500ms"];
    let ended = rig.call(&unknown, "").await?;
    assert!(ended.err.contains("DEADLINE_EXCEEDED") && ended.err.contains("Listener unknown"), "{ended:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_reflection_and_an_unreachable_control_plane_are_named() -> TestResult {
    let rig = Rig::with(Backend::serve("near", Routes::new(EchoServer::new("near"))).await?).await?;
    let ended = rig.ask(UNARY, &[]).await?;
    assert_eq!(
        ended.err,
        "proxyless: the server has no reflection; pass the types with --descriptor-set FILE, or --proto FILE -I DIR\n"
    );
    let nowhere = dead_address()?;
    let bootstrap =
        rig.plane.bootstrap_json().replace(&rig.plane.address().to_string(), &nowhere.address().to_string());
    std::fs::write(rig.folder.path().join("nowhere.json"), bootstrap)?;
    let arguments = ["xds:///greeter", UNARY, "--bootstrap", "nowhere.json", "--deadline", "2s"];
    let ended = rig.call(&arguments, "").await?;
    let said = ended.err.replace(&nowhere.address().to_string(), "NOWHERE");
    assert!(
        said.starts_with("proxyless: cannot get the types of proxyless.testkit.Echo by server reflection: "),
        "{said}"
    );
    assert!(said.contains("NOWHERE") && said.contains("Listener greeter"), "{said}");
    Ok(())
}
