//! Makes the calls of an idle Cluster Autoscaler's loop, in order and number, to any external gRPC cloud provider, and
//! times each call beside the same number of empty ones on the same connection.
//!
//! ```console
//! cargo run --release --example autoscaler_loop -- --address 127.0.0.1:8086 --nodes 5000
//! ```
//!
//! It only reads. The ratio is what counts: the machine, the runtime and the protocol cost both kinds of calls alike.

#[path = "autoscaler_loop/args.rs"]
mod args;
#[path = "autoscaler_loop/calls.rs"]
mod calls;
#[path = "autoscaler_loop/nodes.rs"]
mod nodes;
#[path = "autoscaler_loop/report.rs"]
mod report;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = args::Args::parse();
    match run(&args) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything on one thread, so that no call moves between threads.
fn run(args: &args::Args) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut caller = calls::Caller::connect(&args.address, args.into()).await?;
        let fleet = nodes::fleet(&mut caller, args).await?;
        for _ in 0..args.loops.max(1) {
            caller.play(&fleet).await?;
        }
        let report = report::Report::new(args.into(), &fleet, args.loops.max(1), caller.samples());
        Ok(match args.output {
            args::Output::Table => report.table(),
            args::Output::Json => serde_json::to_string_pretty(&report)?,
        })
    })
}
