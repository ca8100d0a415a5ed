//! Checks that the program can be started without its command line.

use super::{architecture::shipped, read};

/// Cargo holds the order of the crates; of those that ship, the command line alone may have clap.
#[test]
fn only_the_command_line_uses_clap() {
    let uses_clap = |manifest: &str| {
        read(manifest)
            .split("\n[dev-dependencies]")
            .next()
            .unwrap_or_default()
            .lines()
            .any(|line| line.starts_with("clap"))
    };
    assert!(uses_clap("Cargo.toml"));
    for name in shipped() {
        assert!(!uses_clap(&format!("crates/{name}/Cargo.toml")), "{name} depends on clap");
    }
}
