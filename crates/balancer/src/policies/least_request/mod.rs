//! `least_request_experimental` (gRFC A48): samples READY endpoints at random and picks the one with the fewest calls in
//! flight. A petiole policy (gRFC A61).

mod config;
mod in_flight;
mod picker;
mod policy;

#[cfg(test)]
mod tests;

pub use config::LeastRequestConfig;
