#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| proxyless_fuzz::metadata::grpc_trace_bin(data));
