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
async fn a97_07_a_token_that_has_expired_is_left_to_the_server_and_read_again() {
    let world = World::new();
    let now = world.clock.now();
    for token in [expiring(now - 10), expiring(now + 20), expiring(now + 3600)] {
        world.write(&token);
        assert_eq!(world.authorization().await, format!("Bearer {token}"));
    }
}

#[tokio::test]
async fn a97_05_a97_09_calls_share_a_read_and_nothing_is_read_without_a_call() {
    let world = World::new();
    // Without a call there is no attempt that could fail, and no pause after it.
    world.clock.forward(10);
    let (one, two) = tokio::join!(world.file.token(), world.file.token());
    let error = one.unwrap_err();
    assert_eq!(two.unwrap_err(), error);
    let token = expiring(world.clock.now() + 3600);
    world.write(&token);
    world.clock.forward(1);
    // If each call had read the file, the pause would be longer.
    assert_eq!(world.authorization().await, format!("Bearer {token}"));
}

#[tokio::test]
async fn a97_10_a_good_read_ends_the_backoff() {
    let world = World::new();
    for _ in 0..5 {
        world.file.token().await.unwrap_err();
        world.clock.forward(120);
    }
    world.write(&expiring(world.clock.now() + 100));
    world.authorization().await;
    world.clock.forward(100);
    world.write("rubbish");
    world.file.token().await.unwrap_err();
    let token = expiring(world.clock.now() + 3600);
    world.write(&token);
    world.clock.forward(1);
    assert_eq!(world.authorization().await, format!("Bearer {token}"));
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
