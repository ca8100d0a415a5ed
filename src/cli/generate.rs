//! Manual pages and shell completions, made from the help texts of the command line.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::anyhow;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, printing::print};

/// The flags of `completions`, as typed.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// The flags of `man`, as typed.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Directory for the pages, created if missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

impl CompletionsArgs {
    /// Prints the completions of a shell.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let (mut command, mut script) = (Cli::command(), Vec::new());
        let name = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

impl ManArgs {
    /// Writes the manual pages.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        write_pages(&self.directory).map_err(|error| {
            let directory = self.directory.display();
            anyhow!("can't write the manual pages to {directory}: {error}: give a directory that may be written")
        })
    }
}

fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    // The environment must not set defaults in the pages.
    clap_mangen::generate_to(Cli::command(), directory)
}
