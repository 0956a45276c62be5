//! The demo as a program.

#[allow(dead_code, reason = "each test is its own program")]
mod snapshot;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

fn demo(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_proxyless")).arg("demo").args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn a37_01_a99_12_the_demo_falls_to_dns_and_back_and_follows_a_new_order() {
    let (code, text) = demo(&["--duration=1", "--rate=100"]);
    assert_eq!(code, Some(0), "{text}");
    assert_contains(&text, &["== us dies too ==", "READY", "(down)", "RPCs moved as they should"]);
    // The commentary has the reasons of the channel.
    assert_contains(
        &text,
        &["· eu-1", "cannot connect: ", "· RPCs failed over from shop-eu to shop-us", "shop-eu: failed: "],
    );
    // Where RPCs were, one after the other; us may answer before eu is back.
    let row = text.lines().find(|line| line.starts_with("timeline")).unwrap();
    let mut letters: Vec<char> = row.chars().skip("timeline     ".len()).take(60).collect();
    letters.retain(|letter| "eud".contains(*letter));
    letters.dedup();
    let walk = String::from_iter(letters);
    assert!(["eudeu", "eudueu"].contains(&walk.as_str()), "{walk} in:\n{text}");
    assert!(!text.contains('\x1b'), "colours are for terminals");
}

#[test]
fn a_quiet_demo_of_two_regions_prints_the_summary_only() {
    let (code, text) = demo(&["--scenario=regions", "--duration=1", "--rate=100", "--quiet"]);
    assert_eq!(code, Some(0), "{text}");
    assert_contains(&text, &["the near region dies", "far", "RPCs moved as they should"]);
    assert!(text.starts_with("phase") && !text.contains("=="), "{text}");
}

/// The line of a locality in the table of the load.
fn load_of(text: &str, place: &str) -> Vec<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(place)).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// The cells of a row of the timeline.
fn cells(row: &str) -> String {
    row.chars().skip("timeline     ".len()).take(60).collect()
}

#[test]
fn a27_57_the_control_plane_hears_of_the_load_that_there_was() {
    let (code, text) = demo(&["--duration=1", "--rate=100", "--quiet"]);
    assert_eq!(code, Some(0), "{text}");
    let mut sums = [0; 4];
    for place in ["shop-eu in eu ", "shop-us in us ", "shop-dns "] {
        let [issued, succeeded, failed, answered] = load_of(&text, place)[..] else { panic!("{text}") };
        assert!(succeeded > 0 && succeeded == answered && issued >= succeeded + failed, "{text}");
        [issued, succeeded, failed, answered].iter().zip(&mut sums).for_each(|(number, sum)| *sum += number);
    }
    assert_eq!(load_of(&text, "all ")[..4], sums, "{text}");
}

#[test]
fn a75_18_a75_52_sessions_survive_a_priority_change_and_leave_dead_hosts_only() {
    let (code, text) = demo(&["--scenario=sessions", "--duration=1", "--rate=100", "--quiet"]);
    assert_eq!(code, Some(0), "{text}");
    for user in 1..=3 {
        // One host while it lived, whatever the priorities, and then another. The old hosts are killed one after the other,
        // so that a session may move to one that is about to die; but never back.
        let start = format!("session      user {user} on old-");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{text}"));
        let (old, new) = line.split_once("then new-").unwrap_or_else(|| panic!("{line}"));
        assert!(!new.contains("old-") && !new.contains("new-"), "{line}");
        assert!((1..=3).all(|host| old.matches(&format!("old-{host}")).count() <= 1), "{line}");
    }
    let row = text.lines().find(|line| line.starts_with("timeline")).unwrap();
    let mut letters: Vec<char> = cells(row).chars().filter(|letter| "on".contains(*letter)).collect();
    letters.dedup();
    assert_eq!(String::from_iter(letters), "onon", "others follow the priorities: {text}");
}

#[test]
fn a50_a_backend_that_fails_is_ejected_and_comes_back() {
    let (code, text) = demo(&["--scenario=outlier", "--duration=1", "--rate=100"]);
    assert_eq!(code, Some(0), "{text}");
    assert_contains(
        &text,
        &["flaky fails its RPCs and is ejected", "(failing)", "RPCs moved as they should"],
    );
    let rows: Vec<String> = text.lines().filter(|line| line.starts_with("timeline")).map(cells).collect();
    let [good, flaky, failed] = &rows[..] else { panic!("{text}") };
    // Of about 6 s it is ejected for 4.
    let (gap, back) = longest_gap(flaky);
    assert!(back - gap >= 20, "it was never gone: {text}");
    assert!(back < flaky.len() && flaky[..gap].contains('f'), "it was there before and after: {text}");
    assert!(failed.contains('!') && failed.rfind('!') < Some(back), "it fails until it is ejected: {text}");
    let (gap, back) = longest_gap(good);
    assert!(back - gap < 20, "the others go on: {text}");
}

#[test]
fn a29_certificates_rotate_and_backends_with_a_wrong_identity_lose_their_rpcs() {
    let program = env!("CARGO_BIN_EXE_proxyless");
    let mut demo = Command::new(program)
        .args(["demo", "--scenario=mtls", "--duration=1", "--rate=100"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(demo.stdout.take().unwrap());
    // The tree at some time at which a backend is connected.
    let (mut text, mut tree) = (String::new(), String::new());
    while !tree.contains("TLSv1.3") && output.read_line(&mut text).unwrap() > 0 {
        if text.lines().last().is_some_and(|line| line.contains("READY")) {
            let address = text.lines().next().and_then(|line| line.split_whitespace().last()).unwrap();
            let status = Command::new(program).args(["status", "--tree", address]).output().unwrap();
            tree = String::from_utf8(status.stdout).unwrap();
        }
    }
    output.read_to_string(&mut text).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{text}");
    assert_contains(&tree, &[r#"TLSv1.3 URI "spiffe://demo.example/shop""#]);
    assert_contains(&text, &["== all certificates rotate ==", "odd 0/s (wrong identity)", " 0 failed)"]);

    let tls = text.lines().find_map(|line| line.strip_prefix("TLS ")).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<usize> = tls.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [connections, refused] = numbers[..] else { panic!("{tls}") };
    // The three backends of the first priority are connected at first, after the rotation and at the end, and refused in
    // between; the two of the second priority are connected once.
    assert!(refused >= 3 && connections - refused >= 3 * 3 + 2, "{text}");
    let rows: Vec<String> = text.lines().filter(|line| line.starts_with("timeline")).map(cells).collect();
    let [near, odd, far, failed] = &rows[..] else { panic!("{text}") };
    assert!(failed.trim().is_empty(), "{text}");
    let ((odd_gone, _), (near_gone, near_back)) = (longest_gap(odd), longest_gap(near));
    assert!(odd_gone < near_gone, "the other endpoints go on: {text}");
    let far_at = far.find('f').unwrap_or_else(|| panic!("{text}"));
    assert!(
        (near_gone.saturating_sub(1)..near_back).contains(&far_at),
        "the next priority takes over: {text}"
    );
}

/// Where the longest row of empty cells begins and ends.
fn longest_gap(row: &str) -> (usize, usize) {
    let starts = (0..row.len()).filter(|&at| row[at..].starts_with(' '));
    let gaps = starts.map(|at| (at, at + row[at..].find(|cell| cell != ' ').unwrap_or(row.len() - at)));
    gaps.max_by_key(|(gap, back)| back - gap).unwrap_or_default()
}

/// Lines of a pipe are commands; each is answered before the next is sent.
#[test]
fn an_interactive_demo_obeys_and_comments() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_proxyless"))
        .args(["demo", "--interactive", "--plain", "--rate=100"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = demo.stdin.take().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut text = String::new();
    let mut until = |part: &str| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            text.push_str(&line);
            text.push('\n');
            if line.contains(part) {
                return;
            }
        }
        panic!("{part:?} is missing in:\n{text}");
    };
    until("READY");
    input.write_all(b"burn berlin-1\ndrain berlin-1\nweight paris 3\nslow berlin-2\n").unwrap();
    until("\"burn berlin-1\" is not a command");
    until("ClusterLoadAssignment shop-eu: sent by the control plane, and in use");
    until("(draining)");
    input.write_all(b"kill berlin-1\nkill berlin-2\nkill paris-1\nkill paris-2\n").unwrap();
    until("RPCs failed over from shop-eu to shop-us");
    input.write_all(b"order\nquit\n").unwrap();
    until("you: order");
    until(" RPCs, ");
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{text}");
}

#[test]
fn bad_flags_are_refused() {
    for bad in [
        &["--duration=0"][..],
        &["--quiet", "--plain"],
        &["--scenario=unheard-of"],
        &["--interactive", "--quiet"],
    ] {
        assert_eq!(demo(bad).0, Some(2), "{bad:?}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_proxyless")).args(["demo", "--fast"]).output().unwrap();
    snapshot::assert("demo-unknown-flag", &output, std::path::Path::new("no folder")).unwrap();
}

/// As `proxyless demo | head -1` does it.
#[test]
fn a_demo_ends_quietly_with_its_reader() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_proxyless"))
        .args(["demo", "--duration=3600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("live page: "), "{first}");
    let output = demo.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // What a shell reports of a program that SIGPIPE ended.
    assert_eq!((output.status.code(), said.as_str()), (Some(141), ""));
}
