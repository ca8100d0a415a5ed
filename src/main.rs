//! The binary: it reads the command line, runs what it says, and tells how it ended.

use std::process::ExitCode;

use capi_autoscaler_provider::cli::Cli;
use clap::Parser as _;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            error.exit_code()
        }
    }
}
