//! The messages between the processes, one line each: commands as JSON, RPC records as short text.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// A type of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Type {
    Listener,
    Routes,
    Cluster,
    Endpoints,
}

/// Endpoints of one zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) priority: u32,
    pub(crate) endpoints: Vec<SocketAddr>,
}

/// How a cluster selects weighted localities with round_robin: by default, or explicitly and with load reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Policy {
    Default,
    Explicit,
}

/// A resource, or its deletion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Item {
    Listener {
        name: String,
        routes: String,
        cookie: Option<String>,
    },
    Routes {
        name: String,
        clusters: Vec<(String, u32)>,
        retries: u32,
    },
    EdsCluster {
        name: String,
        max_requests: u32,
        policy: Policy,
    },
    AggregateCluster {
        name: String,
        children: Vec<String>,
    },
    DnsCluster {
        name: String,
        host: String,
    },
    Endpoints {
        cluster: String,
        zones: Vec<Zone>,
    },
    Remove {
        of: Type,
        name: String,
    },
    /// Bytes that cannot be decoded.
    Garbage {
        of: Type,
        name: String,
    },
    /// A message with this name that clients must reject.
    Invalid {
        of: Type,
        name: String,
    },
}

impl Item {
    pub(crate) fn resource_type(&self) -> Type {
        match self {
            Self::Listener { .. } => Type::Listener,
            Self::Routes { .. } => Type::Routes,
            Self::EdsCluster { .. } | Self::AggregateCluster { .. } | Self::DnsCluster { .. } => {
                Type::Cluster
            }
            Self::Endpoints { .. } => Type::Endpoints,
            Self::Remove { of, .. } | Self::Garbage { of, .. } | Self::Invalid { of, .. } => *of,
        }
    }
}

/// A command to the control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Applies all changes at once. Numbers grow.
    Update {
        number: u64,
        items: Vec<Item>,
    },
    Goaway,
    CloseStreams,
    FailStreams,
}

/// A message of the control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PlaneEvent {
    /// The client has accepted everything of this type up to this update.
    Ack {
        of: Type,
        number: u64,
        at: Micros,
    },
    Nack {
        of: Type,
        error: String,
        at: Micros,
    },
}

/// The resources used by a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) at: Micros,
    pub(crate) rss_kib: u64,
    pub(crate) fds: usize,
    pub(crate) threads: usize,
    pub(crate) tasks: usize,
    /// The remote port of each TCP connection.
    pub(crate) connections: Vec<u16>,
    pub(crate) in_flight: usize,
}

/// A message of the client, apart from its RPC records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ClientEvent {
    /// Usage before the first channel.
    Baseline(Usage),
    Sample(Usage),
    /// Usage after the load, with the channels still there.
    Idle(Usage),
    /// Usage after the channels are dropped.
    End(Usage),
    Late {
        at: Micros,
        late: Micros,
    },
    Problem(String),
}

/// The kind of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    Unary,
    /// One request, many responses.
    Repeat,
    /// Many requests and responses over some time.
    Chat,
}

/// The record of an RPC that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rpc {
    pub(crate) channel: u8,
    pub(crate) kind: Kind,
    pub(crate) start: Micros,
    pub(crate) end: Micros,
    /// The gRPC status.
    pub(crate) code: u8,
    /// The port that it was last sent to.
    pub(crate) port: Option<u16>,
    /// The number of the backend that answered.
    pub(crate) backend: Option<u8>,
    /// The backend of its session.
    pub(crate) pinned: Option<u8>,
    pub(crate) message: Option<Box<str>>,
}

impl Rpc {
    pub(crate) fn to_line(&self) -> String {
        let kind = match self.kind {
            Kind::Unary => 'u',
            Kind::Repeat => 'r',
            Kind::Chat => 'c',
        };
        let optional = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        format!(
            "{kind} {} {} {} {} {} {} {} {}",
            self.channel,
            self.start,
            self.end,
            self.code,
            optional(self.port.map(u64::from)),
            optional(self.backend.map(u64::from)),
            optional(self.pinned.map(u64::from)),
            self.message.as_deref().unwrap_or_default().replace('\n', " "),
        )
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(9, ' ');
        let kind = match parts.next()? {
            "u" => Kind::Unary,
            "r" => Kind::Repeat,
            "c" => Kind::Chat,
            _ => return None,
        };
        fn optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
            if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
        }
        Some(Self {
            kind,
            channel: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            end: parts.next()?.parse().ok()?,
            code: parts.next()?.parse().ok()?,
            port: optional(parts.next()?)?,
            backend: optional(parts.next()?)?,
            pinned: optional(parts.next()?)?,
            message: parts.next().filter(|text| !text.is_empty()).map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_pipe() {
        let failed = Rpc {
            channel: 3,
            kind: Kind::Chat,
            start: 5,
            end: 9,
            code: 14,
            port: Some(7),
            backend: None,
            pinned: Some(2),
            message: Some("two words".into()),
        };
        assert_eq!(Rpc::from_line(&failed.to_line()), Some(failed.clone()));
        let fine = Rpc { port: None, message: None, ..failed };
        assert_eq!(Rpc::from_line(&fine.to_line()), Some(fine));
        assert_eq!(Rpc::from_line("{}"), None);
    }
}
