//! Hostile control planes and DNS servers, over real sockets.
//!
//! Each attack meets a channel that has a good configuration (or none yet) and a steady load. In every case: nothing
//! panics or hangs, RPCs on the last good configuration succeed, memory stays below a stated bound, connections keep
//! the backoff, and when a good server returns on the same port its configuration arrives.

#[path = "../common/mod.rs"]
mod common;

mod dns;
mod dns_server;
mod exchange;
mod floods;
mod hostile;
mod http;
mod load_reports;
mod memory;
mod nesting;
mod order;
mod reconnects;
mod sizes;
mod stalls;
mod world;
