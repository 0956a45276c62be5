#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxyless_fuzz::tunnel::connect_response(data));
