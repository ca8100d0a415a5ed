//! A sandbox to try the program without clusters: `cargo run --release --example sandbox`.

mod callers;
mod certificates;
mod demo;
mod fleet;
mod options;
mod program;
mod scenario;
mod waiting;

use std::{io, path::Path, process::ExitCode};

use clap::Parser as _;
use service::listen::Shutdown;

fn main() -> ExitCode {
    if program::is_called() { program::run() } else { demonstrate() }
}

#[tokio::main]
async fn demonstrate() -> ExitCode {
    let options = options::Options::parse();
    let done = async {
        if let Some(folder) = &options.callers {
            return callers::process(folder).await;
        }
        let shutdown = Shutdown::on_signals()?;
        if let Some(clusters) = options.clusters {
            return fleet::Demonstration::new(&options, clusters.into()).run(&shutdown, &mut io::stdout()).await;
        }
        let node_groups = Path::new(env!("CARGO_MANIFEST_DIR")).join("../node-groups");
        demo::run(&options, &node_groups, &shutdown, &mut io::stdout()).await
    };
    match done.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
