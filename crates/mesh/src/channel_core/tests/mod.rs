//! Whole channels under virtual time, in a scripted world.

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
