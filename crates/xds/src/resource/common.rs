//! Validators of small messages that several resources share.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;
use envoy_types::pb::google::protobuf;

use super::field::Field;

/// One million: the denominator of all fractions after validation.
pub const MILLION: u32 = 1_000_000;

/// A duration in the range that protobuf allows, never negative (A75-30, A75-31).
pub(crate) fn duration(at: &Field<'_>, proto: &protobuf::Duration) -> Option<Duration> {
    let seconds = u64::try_from(proto.seconds).ok().filter(|&seconds| seconds <= 315_576_000_000);
    let nanos = u32::try_from(proto.nanos).ok().filter(|&nanos| nanos <= 999_999_999);
    if seconds.is_none() {
        at.field("seconds").reject(format!("{} is not in the range 0 to 315576000000", proto.seconds));
    }
    if nanos.is_none() {
        at.field("nanos").reject(format!("{} is not in the range 0 to 999999999", proto.nanos));
    }
    Some(Duration::new(seconds?, nanos?))
}

/// A fraction in millionths (A37-49), capped at one.
pub(crate) fn per_million(at: &Field<'_>, proto: &FractionalPercent) -> Option<u32> {
    let factor = MILLION / denominator(at, proto)?;
    Some(proto.numerator.saturating_mul(factor).min(MILLION))
}

/// The denominator of a fraction.
pub(crate) fn denominator(at: &Field<'_>, proto: &FractionalPercent) -> Option<u32> {
    match DenominatorType::try_from(proto.denominator) {
        Ok(DenominatorType::Hundred) => Some(100),
        Ok(DenominatorType::TenThousand) => Some(10_000),
        Ok(DenominatorType::Million) => Some(MILLION),
        Err(_) => at.field("denominator").fail(format!("{} is not a known denominator", proto.denominator)),
    }
}

/// A source of further resources, which must be the stream of this one.
pub(crate) fn ads_or_self(at: &Field<'_>, source: Option<&core::ConfigSource>) -> Option<()> {
    use core::config_source::ConfigSourceSpecifier::{Ads, Self_};
    match at.require(source)?.config_source_specifier {
        Some(Ads(_) | Self_(_)) => Some(()),
        _ => at.fail("must be ads or self"),
    }
}

/// The socket address in an address; both must be set.
pub(crate) fn socket_address<'p>(
    at: &Field<'_>,
    address: Option<&'p core::Address>,
) -> Option<&'p core::SocketAddress> {
    match at.require(address)?.address {
        Some(core::address::Address::SocketAddress(ref address)) => Some(address),
        _ => at.field("socket_address").require(None),
    }
}

/// A port number, which must be set and in range.
pub(crate) fn port(at: &Field<'_>, address: &core::SocketAddress) -> Option<u16> {
    let Some(core::socket_address::PortSpecifier::PortValue(port)) = address.port_specifier else {
        return port_value(at, None);
    };
    port_value(at, Some(port))
}

/// Like [`port`], given the field itself.
pub(crate) fn port_value(at: &Field<'_>, port: Option<u32>) -> Option<u16> {
    let at = at.field("port_value");
    let port = at.require(port)?;
    u16::try_from(port).map_err(|_| at.reject(format!("{port} is beyond 65535"))).ok()
}
