//! Measures the cores from inside: picks, updates, memory.
fn main() {}
