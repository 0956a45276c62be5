#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxyless_fuzz::resources::aggregate_cluster(data));
