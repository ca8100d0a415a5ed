//! The code in the tree is that which `proto/externalgrpc.proto` gives, compiled by protox, so that no `protoc` has to
//! be installed. After a change of the protocol or of the generators this writes it:
//!
//! ```console
//! UPDATE_PROTO=1 cargo test -p proto --features generate --test generated
//! ```

#![allow(clippy::unwrap_used)]

use std::{env, fs, path::Path};

use prost::Message as _;
use tonic_prost_build::Config;

#[test]
fn the_code_is_that_of_the_protocol() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["externalgrpc.proto"], [package.join("../../proto")]).unwrap();
    let descriptor_set = descriptors.encode_to_vec();
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new();
    // Responses share encoded Nodes instead of copying them.
    config.bytes(["."]);
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .codec_path("crate::codec::BoundedCodec")
        .out_dir(folder.path())
        .compile_fds_with_config(descriptors, config)
        .unwrap();
    let code = fs::read(folder.path().join("clusterautoscaler.cloudprovider.v1.externalgrpc.rs")).unwrap();
    for (name, generated) in [("generated.rs", code), ("externalgrpc.bin", descriptor_set)] {
        let kept = package.join("src").join(name);
        if env::var_os("UPDATE_PROTO").is_some() {
            fs::write(&kept, &generated).unwrap();
        }
        assert!(fs::read(&kept).unwrap() == generated, "{name} is of another protocol, or of other generators");
    }
}
