//! The real drivers, transport and call path against scripted servers, under paused time.
//!
//! Everything runs in one runtime of one thread: a channel, its xDS client, and control planes and backends that speak
//! HTTP/2 over pipes in memory. Time moves when nothing else can, so that minutes of backoff take milliseconds, and all
//! randomness follows from a seed. [`oracles`] says what must hold whatever servers do; [`fault`] has what they do and
//! how long the client may take to recover from it.
//!
//! `DRIVER_SEED` sets the first seed of the random runs, `DRIVER_RUNS` their number, `DRIVER_TRACE` prints what
//! happens. A failure prints its seed.
#![allow(missing_docs)]
#![allow(clippy::print_stderr)] // a failure prints its seed, and on demand what happened

mod backend;
mod bad_peer;
mod early_peer;
mod fault;
mod grpc;
mod load;
mod loads;
mod memory;
mod network;
mod oracles;
mod pipe;
mod plane;
mod random;
mod scenarios;
mod storm;
mod trace;
mod world;
