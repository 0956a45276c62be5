//! The RPCs to send: methods, metadata and deadline. It can change while RPCs run.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap,
};

use super::flags::ClientFlags;
use crate::proto::ClientConfigureRequest;
use crate::proto::client_configure_request::RpcType;

/// A method that the client can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// `EmptyCall`.
    Empty,
    /// `UnaryCall`.
    Unary,
}

impl Method {
    pub(crate) const ALL: [Self; 2] = [Self::Empty, Self::Unary];

    /// `EmptyCall` or `UnaryCall`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "EmptyCall",
            Self::Unary => "UnaryCall",
        }
    }

    /// The name in accumulated statistics.
    pub(crate) fn stats_name(self) -> &'static str {
        match self {
            Self::Empty => "EMPTY_CALL",
            Self::Unary => "UNARY_CALL",
        }
    }

    fn from_rpc_type(number: i32) -> Result<Self, BadPlan> {
        match RpcType::try_from(number) {
            Ok(RpcType::EmptyCall) => Ok(Self::Empty),
            Ok(RpcType::UnaryCall) => Ok(Self::Unary),
            Err(_) => Err(BadPlan(format!("unknown RPC type {number}"))),
        }
    }
}

impl FromStr for Method {
    type Err = BadPlan;

    fn from_str(name: &str) -> Result<Self, BadPlan> {
        let found = Self::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| BadPlan(format!("unknown RPC type {name:?}: expected UnaryCall or EmptyCall")))
    }
}

/// An invalid plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlan(String);

impl fmt::Display for BadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPlan {}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) methods: Vec<Method>,
    pub(super) metadata: BTreeMap<Method, MetadataMap>,
    pub(super) timeout: Duration,
}

impl Plan {
    pub(super) fn from_flags(flags: &ClientFlags) -> Result<Self, BadPlan> {
        let mut plan = Self { methods: Vec::new(), metadata: BTreeMap::new(), timeout: flags.timeout() };
        for name in flags.rpc.split(',').filter(|name| !name.is_empty()) {
            plan.methods.push(name.parse()?);
        }
        for item in flags.metadata.split(',').filter(|item| !item.is_empty()) {
            let mut parts = item.splitn(3, ':');
            let (Some(method), Some(key), Some(value)) = (parts.next(), parts.next(), parts.next()) else {
                return Err(BadPlan(format!("metadata {item:?}: expected METHOD:KEY:VALUE")));
            };
            plan.add_metadata(method.parse()?, key, value)?;
        }
        Ok(plan)
    }

    /// An empty list of types means to send nothing. A timeout of zero means that of the command line.
    pub(super) fn from_request(request: &ClientConfigureRequest, default: Duration) -> Result<Self, BadPlan> {
        let seconds = u64::try_from(request.timeout_sec)
            .map_err(|_| BadPlan(format!("timeout_sec {} is negative", request.timeout_sec)))?;
        let timeout = if seconds == 0 { default } else { Duration::from_secs(seconds) };
        let methods = request.types.iter().map(|number| Method::from_rpc_type(*number));
        let mut plan =
            Self { methods: methods.collect::<Result<_, _>>()?, metadata: BTreeMap::new(), timeout };
        for item in &request.metadata {
            plan.add_metadata(Method::from_rpc_type(item.r#type)?, &item.key, &item.value)?;
        }
        Ok(plan)
    }

    /// The value of a `-bin` key is the bytes to send, as in the clients of other languages, not their base64.
    fn add_metadata(&mut self, method: Method, key: &str, value: &str) -> Result<(), BadPlan> {
        let name = key.to_ascii_lowercase();
        let bad_key = |error: &dyn fmt::Display| BadPlan(format!("metadata key {key:?}: {error}"));
        let metadata = self.metadata.entry(method).or_default();
        if name.ends_with("-bin") {
            let parsed_key = BinaryMetadataKey::from_str(&name).map_err(|error| bad_key(&error))?;
            metadata.append_bin(parsed_key, BinaryMetadataValue::from_bytes(value.as_bytes()));
            return Ok(());
        }
        let parsed_key = AsciiMetadataKey::from_str(&name).map_err(|error| bad_key(&error))?;
        let parsed_value = AsciiMetadataValue::from_str(value)
            .map_err(|error| BadPlan(format!("metadata value {value:?} of {key:?}: {error}")))?;
        metadata.append(parsed_key, parsed_value);
        Ok(())
    }
}
