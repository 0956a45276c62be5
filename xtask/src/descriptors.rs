//! The descriptor set that the command line uses to print and read any xDS resource as JSON.
//!
//! Input: the `.proto` files of the package envoy-types, compiled without protoc. Output: a compressed
//! `FileDescriptorSet`, checked in beside the command that includes it.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The parts of the package that resources consist of, or that those import.
const ROOTS: [&str; 9] = [
    "cel-spec/proto",
    "client_model",
    "data-plane-api",
    "googleapis",
    "opentelemetry-proto",
    "protoc-gen-validate",
    "ratelimit",
    "xds",
    "",
];
const WANTED: [&str; 5] =
    ["envoy/config", "envoy/extensions", "envoy/service/discovery", "envoy/service/status", "envoy/type"];

/// Compiles the descriptor set and replaces the checked-in file.
pub(crate) fn write() -> Result<String, Box<dyn Error>> {
    let bytes = descriptor_set()?.encode_to_vec();
    let path = checked_in();
    let mut encoder = flate2::write::GzEncoder::new(File::create(&path)?, flate2::Compression::best());
    encoder.write_all(&bytes)?;
    encoder.finish()?;
    Ok(format!("wrote {} ({} bytes before compression)", path.display(), bytes.len()))
}

fn checked_in() -> PathBuf {
    workspace().join("crates/control-plane/descriptors.bin.gz")
}

fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

fn descriptor_set() -> Result<FileDescriptorSet, Box<dyn Error>> {
    let protos = package("envoy-types")?.join("proto");
    let includes: Vec<PathBuf> = ROOTS.iter().map(|root| protos.join(root)).collect();
    let mut files = Vec::new();
    let api = protos.join("data-plane-api");
    for folder in WANTED {
        list(&api.join(folder), &mut files)?;
    }
    // The order of files in a folder differs between machines; the result must not.
    files.sort();
    compile(files, &includes)
}

/// Compiles files, together where that works.
///
/// protox also finds relative names in packages that a file does not import: `config.core.v3.Address` inside
/// `envoy.extensions` fails once some file has declared `envoy.extensions.config`. Such a file is compiled again with
/// fewer others, and finally alone.
fn compile(mut files: Vec<PathBuf>, includes: &[PathBuf]) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut compiled = BTreeMap::new();
    while !files.is_empty() {
        let mut compiler = protox::Compiler::new(includes)?;
        compiler.include_imports(true).include_source_info(false);
        let mut failed = Vec::new();
        for (at, file) in files.iter().enumerate() {
            match compiler.open_file(file) {
                Ok(_) => {}
                // Ambiguous because of its own imports (one file, for a kind of cluster that gRPC does not support): it
                // is left out, so that messages of its types are shown as base64.
                Err(_) if at == 0 => {}
                Err(_) => failed.push(file.clone()),
            }
        }
        let set = compiler.file_descriptor_set();
        compiled.extend(set.file.into_iter().map(|file| (file.name().to_owned(), file)));
        files = failed;
    }
    // Each file follows its imports.
    let mut ordered = FileDescriptorSet::default();
    let mut waiting: Vec<String> = compiled.keys().cloned().collect();
    while let Some(name) = waiting.pop() {
        let Some(file) = compiled.get(&name) else { continue };
        let missing: Vec<_> =
            file.dependency.iter().filter(|name| compiled.contains_key(*name)).cloned().collect();
        if missing.is_empty() {
            ordered.file.extend(compiled.remove(&name));
        } else {
            waiting.push(name);
            waiting.extend(missing);
        }
    }
    Ok(ordered)
}

/// The folder of a package of the workspace's lock file.
///
/// `--filter-platform` keeps cargo from requesting packages of other platforms, which may not be downloaded.
fn package(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let host = host(&cargo)?;
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &host])
        .current_dir(workspace())
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let found = packages
        .iter()
        .find(|package| package["name"] == name)
        .ok_or_else(|| format!("cargo metadata does not list {name}"))?;
    let manifest = found["manifest_path"].as_str().ok_or("cargo metadata gives no manifest_path")?;
    Ok(Path::new(manifest).parent().ok_or("manifest_path has no folder")?.to_owned())
}

/// The host platform, as `cargo -vV` prints it.
fn host(cargo: &OsStr) -> Result<String, Box<dyn Error>> {
    let output = Command::new(cargo).arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("cargo -vV does not name its host")?.to_owned())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn checked_in_descriptor_set_is_up_to_date() {
        let mut checked_in_bytes = Vec::new();
        let file = File::open(checked_in()).expect("crates/control-plane/descriptors.bin.gz is checked in");
        flate2::read::GzDecoder::new(file).read_to_end(&mut checked_in_bytes).expect("a gzip file");
        let fresh = descriptor_set().expect("envoy-types compiles").encode_to_vec();
        assert!(checked_in_bytes == fresh, "out of date: run `cargo xtask descriptors`");
    }
}
