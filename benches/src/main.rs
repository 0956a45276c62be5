//! Measures proxyless beside its peers.
fn main() {}
