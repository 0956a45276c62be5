//! Fuzz targets: functions that take any bytes, and panic if what they test breaks its promise.
//!
//! Each target names its oracle. `tests/targets.rs` runs all of them on stable Rust, over their corpus and over seeded
//! mutations of it; `libfuzzer/` runs the same functions under cargo-fuzz.
#![forbid(unsafe_code)]

pub mod ads;
mod endpoint_model;
pub mod grpc;
pub mod http2;
mod input;
pub mod lrs;
pub mod resources;
pub mod text;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its folder in `corpus/` and of its binary in `libfuzzer/`.
    pub name: &'static str,
    /// Takes one input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 14] = [
    Target { name: "listener", run: resources::listener },
    Target { name: "route_configuration", run: resources::route_configuration },
    Target { name: "cluster", run: resources::cluster },
    Target { name: "endpoints", run: resources::endpoints },
    Target { name: "aggregate_cluster", run: resources::aggregate_cluster },
    Target { name: "wrapped", run: resources::wrapped },
    Target { name: "ads", run: ads::ads },
    Target { name: "lrs", run: lrs::lrs },
    Target { name: "orca", run: lrs::orca },
    Target { name: "bootstrap", run: text::bootstrap },
    Target { name: "target_uri", run: text::target_uri },
    Target { name: "grpc_framing", run: grpc::grpc_framing },
    Target { name: "grpc_status", run: grpc::grpc_status },
    Target { name: "http2", run: http2::http2 },
];
