//! Server reflection: the descriptors of the test service, for clients that know it only at run time (`proxyless call`).

use envoy_types::pb::google::protobuf::{FileDescriptorProto, FileDescriptorSet};
use prost::Message as _;

/// The files of `proto`, compiled by the build script.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The files, with TestService as their only service: the others belong to the client, or to the maintenance port.
pub(super) fn files() -> Vec<FileDescriptorProto> {
    // The build script has encoded them.
    let mut files = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors of the build script").file;
    for file in &mut files {
        file.service.retain(|service| service.name() == "TestService");
    }
    files
}
