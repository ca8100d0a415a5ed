//! Docker by its command-line client, as the environment configures it.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{command::pipe, output};

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
