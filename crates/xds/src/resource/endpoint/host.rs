//! The host of a socket address: an IP address or other text.

use std::net::{IpAddr, Ipv4Addr};

use crate::resource::protobuf::Malformed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host<'a> {
    Ip(IpAddr),
    Other(&'a str),
}

impl Default for Host<'_> {
    fn default() -> Self {
        Self::Other("")
    }
}

impl<'a> Host<'a> {
    /// Parses a host, which must be UTF-8.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if let Some(ip) = ipv4(bytes) {
            return Ok(Self::Ip(ip.into()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
        Ok(text.parse().map_or(Self::Other(text), Self::Ip))
    }
}

/// The common case: four numbers without leading zeros. Faster than the standard library, and not more lenient.
fn ipv4(bytes: &[u8]) -> Option<Ipv4Addr> {
    let (a, rest) = octet(bytes)?;
    let (b, rest) = octet(rest.strip_prefix(b".")?)?;
    let (c, rest) = octet(rest.strip_prefix(b".")?)?;
    let (d, rest) = octet(rest.strip_prefix(b".")?)?;
    rest.is_empty().then(|| Ipv4Addr::new(a, b, c, d))
}

/// A number of at most three digits, and the remaining bytes.
#[inline]
fn octet(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |i: usize| bytes.get(i).map(|byte| u32::from(byte.wrapping_sub(b'0'))).filter(|d| *d < 10);
    let first = digit(0)?;
    let (octet, length) = match digit(1) {
        None => (first, 1),
        // Leading zeros are invalid.
        Some(_) if first == 0 => return None,
        Some(second) => match digit(2) {
            None => (first * 10 + second, 2),
            Some(third) => (first * 100 + second * 10 + third, 3),
        },
    };
    Some((octet.try_into().ok()?, bytes.get(length..)?))
}

#[cfg(test)]
mod tests {
    use proxyless_sans_io::Rng;

    use super::*;

    #[test]
    fn a27_104_reads_what_the_standard_library_reads() {
        let mut rng = Rng::new(3);
        let mut ips = 0;
        for _ in 0..200_000 {
            let number = |rng: &mut Rng| match rng.below(30) {
                0 => String::new(),
                1 => format!("0{}", rng.below(30)),
                2 => rng.below(2000).to_string(),
                3 => ":".to_owned(),
                _ => rng.below(257).to_string(),
            };
            let count = if rng.below(10) == 0 { 2 + rng.below(4) } else { 4 };
            let numbers: Vec<String> = (0..count).map(|_| number(&mut rng)).collect();
            let text = numbers.join(".");
            let expected = text.parse().map_or(Host::Other(&text), Host::Ip);
            assert_eq!(Host::read(text.as_bytes()).expect("text"), expected, "{text}");
            ips += u32::from(expected != Host::Other(&text));
        }
        assert!(ips > 50_000 && ips < 190_000, "{ips}");
        assert_eq!(
            Host::read(b"2001:db8::1").expect("text"),
            Host::Ip("2001:db8::1".parse().expect("an IP"))
        );
        assert!(Host::read(b"\xff").is_err());
    }
}
