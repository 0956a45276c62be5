//! The response of an HTTP CONNECT proxy (gRFC A86).

use proxyless_transport::fuzzing;

/// The maximum length of an error.
const LONGEST: usize = 300;
/// The number of prefixes that are tried.
const PREFIXES: usize = 2048;

/// The bytes that a proxy sends after CONNECT.
///
/// The head ends within the bytes and within its limit; errors are short. The outcome does not depend on later bytes: a
/// prefix is incomplete, or has the outcome of the whole.
pub fn connect_response(data: &[u8]) {
    let whole = fuzzing::connect_response(data);
    match &whole {
        Ok(Some((status, length))) => {
            assert!(*status <= 999, "{status}");
            assert!(*length <= data.len() && *length <= 16 * 1024, "{length} of {}", data.len());
        }
        Ok(None) => assert!(data.len() < 16 * 1024),
        Err(why) => assert!(!why.is_empty() && why.len() <= LONGEST, "{why}"),
    }
    for end in 0..data.len().min(PREFIXES) {
        match fuzzing::connect_response(&data[..end]) {
            Ok(None) => {}
            Ok(complete) => {
                assert_eq!(Ok(complete), whole, "after {end} bytes");
                return;
            }
            // The text may show more of the bytes later.
            Err(why) => {
                assert!(whole.is_err(), "after {end} bytes: {why}, then {whole:?}");
                return;
            }
        }
    }
}
