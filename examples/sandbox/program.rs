//! The program itself, under its own name in the sandbox's folder: what the sandbox prints to try next needs no other
//! build.

use std::{env, os::unix, path::Path, process::ExitCode};

use anyhow::Context as _;
use capi_autoscaler_provider::cli::Cli;
use clap::Parser as _;

const NAME: &str = "capi-autoscaler-provider";

/// Whether this process was started by the link of [`link`].
pub(crate) fn is_called() -> bool {
    env::args_os().next().is_some_and(|path| Path::new(&path).file_name().is_some_and(|name| name == NAME))
}

/// Runs a command of the program.
pub(crate) fn run() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Links this process's executable beside a kubeconfig under the program's name, and returns the path as it is typed.
pub(crate) fn link(kubeconfig: &Path) -> anyhow::Result<String> {
    let path = kubeconfig.with_file_name(NAME);
    let linked = env::current_exe().and_then(|this| unix::fs::symlink(this, &path));
    linked.with_context(|| format!("can't link the program to {}", path.display()))?;
    Ok(path.display().to_string())
}
