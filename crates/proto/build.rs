//! Compiles `proto/externalgrpc.proto` with protox, so that no `protoc` has to be installed.

use std::{env, error::Error, fs, path::PathBuf};

use prost_types::FileDescriptorSet;
use tonic_prost_build::Config;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=../../proto/externalgrpc.proto");
    let descriptors: FileDescriptorSet = protox::compile(["externalgrpc.proto"], ["../../proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("externalgrpc.bin"), prost::Message::encode_to_vec(&descriptors))?;

    let mut config = Config::new();
    // Responses share encoded Nodes instead of copying them.
    config.bytes(["."]);
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
