//! The types of a method: from a descriptor set, from .proto files, or from the server itself.

use std::error::Error;

use prost_reflect::{DescriptorPool, MethodDescriptor};
use proxyless::XdsChannel;

use super::method::MethodName;
use super::{CallFlags, reflection};

/// The descriptor of the method.
pub(super) async fn method(
    flags: &CallFlags,
    name: &MethodName,
    channel: &XdsChannel,
) -> Result<MethodDescriptor, Box<dyn Error>> {
    let pool = if let Some(path) = &flags.descriptor_set {
        let shown = path.display();
        let bytes = std::fs::read(path).map_err(|error| format!("descriptor set {shown}: {error}"))?;
        DescriptorPool::decode(bytes.as_slice())
            .map_err(|error| format!("descriptor set {shown}: {error}"))?
    } else if !flags.proto.is_empty() {
        compile(flags)?
    } else {
        reflection::files(channel, &name.service, flags.deadline).await?
    };
    find(&pool, name).map_err(Into::into)
}

fn compile(flags: &CallFlags) -> Result<DescriptorPool, Box<dyn Error>> {
    let here = [std::path::PathBuf::from(".")];
    let imports = if flags.imports.is_empty() { &here[..] } else { &flags.imports };
    let files = protox::compile(&flags.proto, imports).map_err(|error| format!("--proto: {error}"))?;
    Ok(DescriptorPool::from_file_descriptor_set(files)?)
}

/// The method of this name; the error lists those that there are.
fn find(pool: &DescriptorPool, name: &MethodName) -> Result<MethodDescriptor, String> {
    let MethodName { service, method } = name;
    let Some(found) = pool.get_service_by_name(service) else {
        let known: Vec<_> = pool.services().map(|service| service.full_name().to_owned()).collect();
        let known = if known.is_empty() { "no services".to_owned() } else { known.join(", ") };
        return Err(format!("there is no service {service}; known: {known}"));
    };
    let mut methods = found.methods();
    methods.find(|known| known.name() == method).ok_or_else(|| {
        let known: Vec<_> = found.methods().map(|known| known.name().to_owned()).collect();
        format!("service {service} has no method {method}; it has {}", known.join(", "))
    })
}
