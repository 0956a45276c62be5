#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxyless_fuzz::tls::trust_bundle_map(data));
