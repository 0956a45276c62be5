//! The descriptor of the echo service, for server reflection and for clients that know it only at run time.

use envoy_types::pb::google::protobuf::field_descriptor_proto::{Label, Type};
use envoy_types::pb::google::protobuf::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto,
    ServiceDescriptorProto,
};
use prost::Message as _;

/// The file that defines the echo service.
#[must_use]
pub fn descriptor() -> FileDescriptorProto {
    let service = ServiceDescriptorProto {
        name: Some("Echo".into()),
        method: vec![
            method("Unary", false, false),
            method("Repeat", false, true),
            method("Collect", true, false),
            method("Chat", true, true),
        ],
        ..Default::default()
    };
    FileDescriptorProto {
        name: Some("proxyless/testkit/echo.proto".into()),
        package: Some("proxyless.testkit".into()),
        message_type: vec![
            message("EchoRequest", [("message", Type::String), ("repeat", Type::Uint32)]),
            message("EchoResponse", [("message", Type::String), ("backend", Type::String)]),
        ],
        service: vec![service],
        syntax: Some("proto3".into()),
        ..Default::default()
    }
}

/// The same as a set of files, encoded as `protoc --descriptor_set_out` does.
#[must_use]
pub fn descriptor_set() -> Vec<u8> {
    FileDescriptorSet { file: vec![descriptor()] }.encode_to_vec()
}

fn message(name: &str, fields: [(&str, Type); 2]) -> DescriptorProto {
    let field = |(number, (name, kind)): (i32, (&str, Type))| FieldDescriptorProto {
        name: Some(name.into()),
        json_name: Some(name.into()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..Default::default()
    };
    DescriptorProto {
        name: Some(name.into()),
        field: (1..).zip(fields).map(field).collect(),
        ..Default::default()
    }
}

fn method(name: &str, client_streaming: bool, server_streaming: bool) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: Some(name.into()),
        input_type: Some(".proxyless.testkit.EchoRequest".into()),
        output_type: Some(".proxyless.testkit.EchoResponse".into()),
        client_streaming: Some(client_streaming),
        server_streaming: Some(server_streaming),
        ..Default::default()
    }
}
