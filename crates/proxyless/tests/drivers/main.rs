//! The real drivers, transport and call path against scripted servers, under paused time.
//!
//! Everything runs in one runtime of one thread: a channel, its xDS client, and control planes and backends that speak
//! HTTP/2 over in-memory pipes. Time advances when nothing else can run, so that minutes of backoff take milliseconds,
//! and all randomness follows from a seed. [`oracles`] has the rules that hold for all server behaviour; [`fault`] has
//! the faults and the bounds on recovery.
//!
//! `DRIVER_SEED` sets the first seed of the random runs, `DRIVER_RUNS` their number, `DRIVER_TRACE` prints all events.
//! A failure prints its seed.
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
