//! Makes the descriptor set by which any xDS resource can be written as JSON: from the `.proto` files that the package
//! envoy-types ships, compiled without protoc, compressed.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The parts of the package that a resource can be made of, or that those import.
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

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    let protos = package("envoy-types")?.join("proto");
    let includes: Vec<PathBuf> = ROOTS.iter().map(|root| protos.join(root)).collect();
    let mut files = Vec::new();
    let api = protos.join("data-plane-api");
    for folder in WANTED {
        list(&api.join(folder), &mut files)?;
    }
    let bytes = compile(files, &includes)?.encode_to_vec();

    let out = PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin.gz");
    let mut encoder = flate2::write::GzEncoder::new(File::create(out)?, flate2::Compression::best());
    encoder.write_all(&bytes)?;
    encoder.finish()?;
    Ok(())
}

/// Compiles files, together where that works.
///
/// protox finds relative names also in packages that a file does not import: `config.core.v3.Address` inside
/// `envoy.extensions` fails once some file has made `envoy.extensions.config` known. Such a file gets another turn among
/// fewer others, in the end alone.
fn compile(mut files: Vec<PathBuf>, includes: &[PathBuf]) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut compiled = BTreeMap::new();
    while !files.is_empty() {
        let mut compiler = protox::Compiler::new(includes)?;
        compiler.include_imports(true).include_source_info(false);
        let mut failed = Vec::new();
        for (at, file) in files.iter().enumerate() {
            match compiler.open_file(file) {
                Ok(_) => {}
                // Confused by its own imports (one file, of a kind of cluster that gRPC does not have): left out, so that
                // messages of its types are shown as base64.
                Err(_) if at == 0 => {}
                Err(_) => failed.push(file.clone()),
            }
        }
        let set = compiler.file_descriptor_set();
        compiled.extend(set.file.into_iter().map(|file| (file.name().to_owned(), file)));
        files = failed;
    }
    // Each file comes after its imports.
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

/// The folder of a package that this one depends on.
fn package(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let found = packages.iter().find(|package| package["name"] == name).ok_or("the package is not there")?;
    let manifest = found["manifest_path"].as_str().ok_or("the package has no manifest")?;
    Ok(Path::new(manifest).parent().ok_or("the manifest has no folder")?.to_owned())
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
