//! hickory's errors as [`ResolveError`]s.

use std::fmt;
use std::net::SocketAddr;

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

use super::{ResolveError, ResolveErrorKind};

impl ResolveError {
    pub(super) fn failed(host: &str, reason: impl fmt::Display) -> Self {
        Self::new(host, ResolveErrorKind::Failed(reason.to_string()))
    }

    pub(super) fn of_servers(host: &str, servers: Vec<SocketAddr>, error: &NetError) -> Self {
        let mut failure = Self::new(host, kind(error));
        failure.servers = servers;
        failure
    }
}

fn kind(error: &NetError) -> ResolveErrorKind {
    match error {
        NetError::Timeout => ResolveErrorKind::TimedOut,
        NetError::Dns(DnsError::ResponseCode(code)) => answered(*code),
        NetError::Dns(DnsError::NoRecordsFound(none)) => answered(none.response_code),
        other => ResolveErrorKind::Failed(other.to_string()),
    }
}

fn answered(code: ResponseCode) -> ResolveErrorKind {
    match code {
        ResponseCode::NXDomain => ResolveErrorKind::NotFound,
        ResponseCode::NoError => ResolveErrorKind::NoAddresses,
        // The names of the codes in RFCs, which people search for.
        code => ResolveErrorKind::Answered(format!("{code:?}").to_uppercase()),
    }
}
