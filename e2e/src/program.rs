//! Builds the program under test, as a user would: with cargo.

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const NAME: &str = "capi-autoscaler-provider";

/// Builds the binary when it is not up to date, and returns where it is.
///
/// Naming both packages makes cargo choose the same features of the dependencies as it did for these tests, so that they are not
/// built twice.
pub fn build() -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
        .args(["-p", "e2e", "-p", NAME, "--bin", NAME])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo to build the program")?;
    ensure!(output.status.success(), "cargo build of {NAME}: {}", output.status);
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == NAME)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo named no executable of {NAME}"))
}
