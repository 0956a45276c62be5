//! An xDS control plane from files, and a check of xDS resources by the rules of gRPC clients.
//!
//! [`Mesh::read`] turns mesh files into resources, [`Plane`] keeps what is served and to whom, [`Serving`] is the gRPC
//! server, and [`check`] says what a gRPC client would do with resources and bootstraps. `proxyless serve` and
//! `proxyless check` are thin layers on top; docs/serve.md describes the files.
//!
//! This crate is an implementation detail of the command line of
//! [proxyless](https://docs.rs/proxyless): it promises no semver stability.
#![forbid(unsafe_code)]

pub mod check;
mod file;
mod files;
mod mesh;
mod messages;
mod server;

pub use file::problem::{Location, Position, Problem};
pub use files::{Files, Fingerprint};
pub use mesh::{Mesh, MeshError, MeshResource, Source, short_type};
pub use messages::Messages;
pub use server::{Changes, ClientView, Event, LoadView, Plane, Serving, TlsFiles, TypeChanges, TypeView};
