//! Bearer tokens from a file (gRFC A97).

mod common;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::Clock;
use proxyless_testkit::tls::CertificateFolder;
use proxyless_tls::{JwtTokenFile, TokenError};

fn jwt(payload: &str) -> String {
    let [header, payload, signature] =
        ["{\"alg\":\"ES256\"}", payload, "secret"].map(|part| URL_SAFE_NO_PAD.encode(part));
    format!("{header}.{payload}.{signature}")
}

fn expiring(at: u64) -> String {
    jwt(&format!("{{\"exp\":{at}}}"))
}

struct World {
    folder: CertificateFolder,
    clock: Arc<Clock>,
    file: JwtTokenFile,
}

impl World {
    fn new() -> Self {
        let (folder, clock) = (CertificateFolder::new().unwrap(), Clock::start());
        let file = JwtTokenFile::with_clock(folder.path("token"), clock.clone());
        Self { folder, clock, file }
    }

    fn write(&self, content: &str) {
        self.folder.write(&self.folder.path("token"), content).unwrap();
    }

    async fn authorization(&self) -> String {
        self.file.token().await.unwrap().authorization()
    }
}

#[tokio::test]
async fn a97_01_a97_11_the_token_is_a_bearer_token() {
    let world = World::new();
    let token = expiring(world.clock.now() + 3600);
    world.write(&format!("{token}\n"));
    assert_eq!(world.authorization().await, format!("Bearer {token}"));
}

#[tokio::test]
async fn a97_01_to_a97_04_the_token_is_kept_and_read_again_before_it_expires() {
    let world = World::new();
    let (first, second) = (expiring(world.clock.now() + 1000), expiring(world.clock.now() + 2000));
    world.write(&first);
    assert_eq!(world.authorization().await, format!("Bearer {first}"));
    world.write(&second);
    // 30 s before the end it counts as expired, and a minute before that it is read again.
    world.clock.forward(1000 - 30 - 60 - 1);
    assert_eq!(world.authorization().await, format!("Bearer {first}"));
    world.clock.forward(1);
    assert_eq!(world.authorization().await, format!("Bearer {second}"));
}

#[tokio::test]
async fn a97_02_a_token_is_used_until_it_expires_if_there_is_no_other() {
    let world = World::new();
    let token = expiring(world.clock.now() + 1000);
    world.write(&token);
    world.authorization().await;
    world.write("rubbish");
    world.clock.forward(1000 - 31);
    assert_eq!(world.authorization().await, format!("Bearer {token}"));
    world.clock.forward(1);
    let error = world.file.token().await.unwrap_err();
    assert!(matches!(error, TokenError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn a97_07_bad_tokens_are_named_with_the_reason() {
    let now = Clock::start().now();
    for (content, why) in [
        ("", "is empty"),
        ("a.b", "is not a JSON web token"),
        ("a.b.c.d", "is not a JSON web token"),
        ("a.b c.d", "is not a JSON web token"),
        ("a.b\u{e9}.c", "is not a JSON web token"),
        ("a.b.c", "payload is not JSON"),
        (&jwt("rubbish"), "payload is not JSON"),
        (&jwt("{}"), "without a valid exp"),
        (&jwt("{\"exp\":\"soon\"}"), "without a valid exp"),
        (&jwt("{\"exp\":-1}"), "without a valid exp"),
        (&expiring(now - 10), "has expired"),
        (&expiring(now + 20), "has expired, or does so in less than 30 s"),
        (&"a".repeat(70_000), "more than 65536 bytes"),
    ] {
        let world = World::new();
        world.write(content);
        let error = world.file.token().await.unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("/token: "), "{error:?} should contain {why:?}");
        assert!(content.len() < 8 || !error.contains(content), "{error}");
    }
}

#[tokio::test]
async fn a97_06_a97_08_reads_that_fail_are_repeated_after_growing_pauses() {
    let world = World::new();
    let error = world.file.token().await.unwrap_err();
    assert!(matches!(&error, TokenError::Unreadable(_)), "{error}");
    let token = expiring(world.clock.now() + 3600);
    world.write(&token);
    assert_eq!(world.file.token().await.unwrap_err(), error, "the pause is not over");
    world.clock.forward(1);
    assert_eq!(world.authorization().await, format!("Bearer {token}"));

    let world = World::new();
    let mut last = world.file.token().await.unwrap_err();
    let mut pauses = Vec::new();
    for content in ["rubbish", "a.b.c"].repeat(10) {
        // Each attempt can be told by its error.
        world.write(content);
        let mut pause = 0;
        while world.file.token().await.unwrap_err() == last {
            world.clock.forward(1);
            pause += 1;
        }
        last = world.file.token().await.unwrap_err();
        pauses.push(pause);
    }
    assert_eq!(pauses[..6], [1, 2, 3, 5, 7, 11]);
    assert_eq!(pauses[15..], [120; 5]);
}

#[tokio::test]
async fn a97_17_debug_output_has_no_token() {
    let world = World::new();
    let text = expiring(world.clock.now() + 3600);
    world.write(&text);
    let token = world.file.token().await.unwrap();
    let output = format!("{token:?} {:?}", world.file);
    assert!(text.split('.').all(|part| !output.contains(part)), "{output}");
}
