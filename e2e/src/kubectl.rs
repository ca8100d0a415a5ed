//! kubectl as a user runs it, with only a kubeconfig and a home directory of its own.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::spawn_blocking};

use crate::process::{Process, output, refusal};

/// kubectl for one server and one namespace.
#[derive(Debug)]
pub struct Kubectl {
    binary: PathBuf,
    home: PathBuf,
    namespace: String,
    prepared: Arc<OnceCell<()>>,
    files: AtomicUsize,
}

impl Kubectl {
    /// Creates kubectl for the server of `kubeconfig`, with its files in the directory `home`. All sessions on one
    /// server share `prepared`.
    pub fn new(
        binary: PathBuf,
        home: PathBuf,
        kubeconfig: &Value,
        namespace: &str,
        prepared: Arc<OnceCell<()>>,
    ) -> Result<Self> {
        fs::create_dir_all(&home)?;
        let mut kubeconfig = kubeconfig.clone();
        kubeconfig["contexts"][0]["context"]["namespace"] = json!(namespace);
        fs::write(home.join("kubeconfig"), kubeconfig.to_string())?;
        Ok(Self { binary, home, namespace: namespace.to_owned(), prepared, files: AtomicUsize::new(0) })
    }

    /// Runs the preparation that each server needs once, or waits while another session does.
    pub async fn prepare(&self, once: impl Future<Output = Result<()>>) -> Result<()> {
        self.prepared.get_or_try_init(|| once).await?;
        Ok(())
    }

    /// Returns its default namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs a command, which must succeed, and returns its standard output. The command is split at spaces.
    pub async fn run(&self, command: &str) -> Result<String> {
        let mut command = self.command(command);
        spawn_blocking(move || output(&mut command)).await?
    }

    /// Runs a command, which must fail, and returns its standard error.
    pub async fn fail(&self, command: &str) -> Result<String> {
        let mut command = self.command(command);
        spawn_blocking(move || refusal(&mut command)).await?
    }

    /// The same as `run`, with a file of this object as the last argument.
    pub async fn run_on(&self, command: &str, object: &Value) -> Result<String> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.home.join(format!("object-{number}.json"));
        fs::write(&path, object.to_string())?;
        self.run(&format!("{command} {}", path.display())).await
    }

    /// Returns the cells of the printed table, without the heading.
    pub async fn rows(&self, command: &str) -> Result<Vec<Vec<String>>> {
        let text = self.run(command).await?;
        Ok(cells(&text).into_iter().skip(1).collect())
    }

    /// Starts a command that does not end by itself.
    pub fn start(&self, command: &str) -> Result<Process> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let log = self.home.join(format!("output-{number}.log"));
        Process::start(&format!("kubectl {command}"), self.command(command), &log)
    }

    fn command(&self, command: &str) -> Command {
        let mut built = Command::new(&self.binary);
        built
            .args(["--request-timeout=20s"])
            .args(command.split_whitespace())
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.home.join("kubeconfig"));
        built
    }
}

/// Splits a printed table into cells. Columns are at least two spaces apart, so that a heading may contain one.
pub fn cells(table: &str) -> Vec<Vec<String>> {
    let row = |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    table.lines().map(row).collect()
}

/// Fails unless all of these lines are there, in this order, with anything between.
pub fn assert_lines(text: &str, expected: &[&str]) -> Result<()> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    for line in expected {
        let is_there = lines.any(|found| found == *line);
        ensure!(is_there, "no line {line:?}, or not after those before it, in\n{text}");
    }
    Ok(())
}
