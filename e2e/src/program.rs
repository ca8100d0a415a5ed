//! Builds the program under test with cargo, as a user would, and runs it for a scenario.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    process::{Process, free_port, tail},
    provider::Provider,
};

const NAME: &str = "capi-autoscaler-provider";

/// Builds the binary unless it is up to date, and returns its path.
pub fn build() -> Result<PathBuf> {
    build_of(NAME)
}

/// Builds the driver that runs in a Pod unless it is up to date, and returns its path.
pub(crate) fn build_driver() -> Result<PathBuf> {
    build_of("driver")
}

/// Naming both packages makes cargo choose the same features of the dependencies as for these tests, so that they are
/// not built twice.
fn build_of(name: &str) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--message-format=json-render-diagnostics"])
        .args(["-p", "e2e", "-p", NAME, "--bin", name])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo to build the program")?;
    ensure!(output.status.success(), "cargo build of {name}: {}", output.status);
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo named no executable of {name}"))
}

/// The programs that a scenario runs, with their logs.
pub struct Programs {
    program: PathBuf,
    directory: PathBuf,
    logs: Arc<Mutex<Vec<PathBuf>>>,
}

impl Programs {
    /// Creates the runner of this binary, which keeps its files in a directory.
    pub fn new(program: PathBuf, directory: PathBuf) -> Self {
        Self { program, directory, logs: Arc::default() }
    }

    /// Returns the path of the binary.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the directory of their files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts one with addresses, a management kubeconfig and only these flags and environment variables.
    pub fn launch(&self, management: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Result<Provider> {
        let (grpc, http, admin) = (free_port()?, free_port()?, free_port()?);
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg(format!("--listen=127.0.0.1:{grpc}"))
            .arg(format!("--http-listen=127.0.0.1:{http}"))
            .arg(format!("--admin-listen=127.0.0.1:{admin}"))
            .arg(format!("--management-kubeconfig={}", management.display()))
            .args(flags)
            // The machine that runs the tests must have no influence, above all not by a kubeconfig.
            .env_clear()
            .env("HOME", &self.directory)
            .envs(environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let log = self.directory.join(format!("program-{}.log", logs.len()));
        logs.push(log.clone());
        let process = Process::start("the program", command, &log)?;
        Provider::new(process, grpc, http, admin)
    }

    /// Runs a subcommand with a management kubeconfig and only these flags and environment variables. Returns its exit
    /// code and its JSON output.
    pub fn report(
        &self,
        subcommand: &str,
        management: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<(Option<i32>, Value)> {
        let output = Command::new(&self.program)
            .args([subcommand, "-o", "json"])
            .arg(format!("--management-kubeconfig={}", management.display()))
            .args(flags)
            .env_clear()
            .env("HOME", &self.directory)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {subcommand}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let report =
            serde_json::from_slice(&output.stdout).with_context(|| format!("{subcommand} wrote no report: {said}"))?;
        Ok((output.status.code(), report))
    }

    /// Makes the logs of both appear together from now on.
    pub(crate) fn share_logs(&mut self, with: &Self) {
        self.logs = Arc::clone(&with.logs);
    }

    /// Returns their log files.
    pub fn logs(&self) -> Vec<PathBuf> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the end of their logs, for a report of a failure.
    pub fn log_tails(&self) -> String {
        let ends = self
            .logs()
            .iter()
            .enumerate()
            .map(|(number, log)| format!("\n--- program {number} wrote, at the end:\n{}", tail(log)))
            .collect::<Vec<_>>();
        ends.join("\n")
    }
}
