//! Compiles the `.proto` file without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["channelz.proto"], ["proto"])?;
    tonic_prost_build::configure().build_transport(false).build_client(true).compile_fds(descriptors)?;
    Ok(())
}
