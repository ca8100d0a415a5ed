//! A sandbox to try the program without clusters: `cargo run --release --example sandbox`.

mod demo;
mod options;
mod scenario;
mod waiting;

use std::{io, path::Path, process::ExitCode};

use clap::Parser as _;
use server::Shutdown;

#[tokio::main]
async fn main() -> ExitCode {
    let options = options::Options::parse();
    let done = async {
        let shutdown = Shutdown::on_signals()?;
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
