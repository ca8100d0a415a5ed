//! The binary: parses the command line, runs the command, and reports its result.

use std::process::ExitCode;

use capi_autoscaler_provider::cli::Cli;
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
