//! Docker by its command-line client, as the environment configures it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{command::pipe, output};

/// The bytes that are kept of a command's output.
const KEPT: usize = 2_000_000;

/// A Docker that answers.
#[derive(Clone, Copy, Debug)]
pub struct Docker {
    program: &'static str,
}

impl Docker {
    /// Returns Docker, if its daemon runs.
    pub fn running() -> Result<Self> {
        let docker = Self { program: "docker" };
        docker.run(&["version", "--format", "{{.Server.Version}}"]).context("Docker's daemon doesn't answer")?;
        Ok(docker)
    }

    /// Runs a command, which must succeed, and returns its standard output.
    pub fn run(self, arguments: &[&str]) -> Result<String> {
        output(self.command().args(arguments))
    }

    /// Returns the lines of a command's output.
    pub fn lines(self, arguments: &[&str]) -> Result<Vec<String>> {
        Ok(self.run(arguments)?.lines().map(str::to_owned).collect())
    }

    /// Returns the description of an object, such as an image or a container.
    pub fn inspect(self, object: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.run(&["inspect", object])?)?;
        answer.get(0).cloned().with_context(|| format!("docker inspect {object} answers {answer}"))
    }

    /// Returns the ids of the networks of a name.
    pub(crate) fn networks(self, name: &str) -> Result<Vec<String>> {
        self.lines(&["network", "ls", "--quiet", "--filter", &format!("name=^{name}$")])
    }

    /// Returns the paths of the files in a container.
    pub fn exported_files(self, container: &str) -> Result<Vec<String>> {
        let list = pipe(self.command().args(["export", container]), Command::new("tar").args(["--list", "--file=-"]))?;
        Ok(list.lines().filter(|path| !path.ends_with('/')).map(str::to_owned).collect())
    }

    /// Returns the bytes of an image in gzip, as a pull transfers them.
    pub fn packed_size(self, image: &str) -> Result<u64> {
        let directory = tempfile::tempdir()?;
        let archive = directory.path().join("image.tar");
        output(self.command().args(["save", "--output"]).arg(&archive).arg(image))?;
        output(Command::new("gzip").arg(&archive))?;
        Ok(fs::metadata(archive.with_extension("tar.gz"))?.len())
    }

    /// Runs a command, which may fail, and keeps the end of its output in a file.
    pub(crate) fn keep_output(self, arguments: &[&str], file: &Path) -> Result<()> {
        let output = self.command().args(arguments).stdin(Stdio::null()).output()?;
        let text = [output.stdout, output.stderr].concat();
        let from = text.len().saturating_sub(KEPT);
        fs::write(file, &text[from..]).with_context(|| format!("writing {}", file.display()))
    }

    /// Pulls an image unless it is there.
    pub(super) fn pull(self, image: &str) -> Result<()> {
        if self.inspect(image).is_err() {
            self.run(&["pull", "--quiet", image])?;
        }
        Ok(())
    }

    pub(super) fn command(self) -> Command {
        Command::new(self.program)
    }
}
