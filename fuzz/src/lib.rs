//! Fuzz targets: functions that take arbitrary bytes, and panic if the code under test violates a property.
//!
//! Each target documents its properties. `tests/targets.rs` runs all of them on stable Rust, over their corpus and over
//! seeded mutations of it; `libfuzzer/` runs the same functions under cargo-fuzz.
#![forbid(unsafe_code)]

pub mod ads;
pub mod channel;
pub mod dns;
mod endpoint_model;
pub mod frames;
pub mod grpc;
pub mod http2;
mod input;
pub mod lrs;
pub mod metadata;
pub mod resources;
pub mod text;
pub mod tls;
pub mod tunnel;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its folder in `corpus/` and of its binary in `libfuzzer/`.
    pub name: &'static str,
    /// The file in `dictionaries/` with tokens for it, if there is one.
    pub dictionary: Option<&'static str>,
    /// Takes one input.
    pub run: fn(&[u8]),
}

impl Target {
    const fn new(name: &'static str, dictionary: Option<&'static str>, run: fn(&[u8])) -> Self {
        Self { name, dictionary, run }
    }
}

/// Every target.
pub const TARGETS: [Target; 23] = [
    Target::new("listener", Some("resources.dict"), resources::listener),
    Target::new("route_configuration", Some("resources.dict"), resources::route_configuration),
    Target::new("cluster", Some("resources.dict"), resources::cluster),
    Target::new("endpoints", None, resources::endpoints),
    Target::new("aggregate_cluster", None, resources::aggregate_cluster),
    Target::new("wrapped", Some("resources.dict"), resources::wrapped),
    Target::new("ads", Some("resources.dict"), ads::ads),
    Target::new("channel", Some("resources.dict"), channel::channel),
    Target::new("lrs", None, lrs::lrs),
    Target::new("orca", None, lrs::orca),
    Target::new("orca_trailer", None, metadata::orca_trailer),
    Target::new("session_cookie", Some("session_cookie.dict"), metadata::session_cookie),
    Target::new("grpc_trace_bin", None, metadata::grpc_trace_bin),
    Target::new("bootstrap", Some("bootstrap.dict"), text::bootstrap),
    Target::new("target_uri", Some("target_uri.dict"), text::target_uri),
    Target::new("grpc_framing", None, grpc::grpc_framing),
    Target::new("grpc_status", Some("grpc_status.dict"), grpc::grpc_status),
    Target::new("frame_tap", Some("frames.dict"), frames::frame_tap),
    Target::new("http2", Some("frames.dict"), http2::http2),
    Target::new("dns", Some("dns.dict"), dns::dns),
    Target::new("certificate", None, tls::certificate),
    Target::new("trust_bundle_map", Some("trust_bundle_map.dict"), tls::trust_bundle_map),
    Target::new("connect_response", Some("connect_response.dict"), tunnel::connect_response),
];
