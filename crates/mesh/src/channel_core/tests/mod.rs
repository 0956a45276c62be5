//! Whole channels under virtual time, in a world that does what the test says.

mod circuits;
mod describe;
mod dns;
mod failover;
mod idle;
mod lifecycle;
mod load;
mod routing;
mod scale;
mod world;
