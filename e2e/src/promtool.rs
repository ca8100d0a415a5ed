//! promtool as a user of Prometheus runs it: on rules, on tests of rules, and on exported metrics.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::go;

/// promtool, with files of its own.
#[derive(Debug)]
pub struct Promtool {
    binary: PathBuf,
    files: TempDir,
}

impl Promtool {
    /// Builds promtool unless it is built.
    pub fn new() -> Result<Self> {
        let files = tempfile::Builder::new().prefix("capi-e2e-promtool-").tempdir()?;
        Ok(Self { binary: go::promtool()?, files })
    }

    /// Checks that a text is a valid file of rules with valid queries.
    pub fn check_rules(&self, rules: &str) -> Result<()> {
        let path = self.files.path().join("rules.yaml");
        fs::write(&path, rules)?;
        self.run(&["check", "rules", "--lint-fatal", &path.display().to_string()], None)
    }

    /// Runs a file of tests of rules.
    pub fn test_rules(&self, tests: &Path) -> Result<()> {
        self.run(&["test", "rules", &tests.display().to_string()], None)
    }

    /// Checks exported metrics in Prometheus' text format, and their names.
    pub fn check_metrics(&self, text: &str) -> Result<()> {
        let path = self.files.path().join("metrics.txt");
        fs::write(&path, text)?;
        self.run(&["check", "metrics"], Some(&path))
    }

    fn run(&self, arguments: &[&str], input: Option<&Path>) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env_clear();
        if let Some(path) = input {
            command.stdin(File::open(path)?);
        }
        let output = command.output().context("running promtool")?;
        let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        ensure!(output.status.success(), "promtool {}: {}\n{out}{err}", arguments.join(" "), output.status);
        Ok(())
    }
}
