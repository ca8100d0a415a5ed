//! Runs worlds.

use clap::Parser;

/// Runs worlds of the simulation.
#[derive(Parser)]
struct Arguments {
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds from there.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Copies of the program.
    #[arg(long, default_value_t = 2)]
    copies: usize,
    /// Virtual seconds.
    #[arg(long, default_value_t = 2700)]
    seconds: u64,
    /// Prints the trace.
    #[arg(long)]
    trace: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let plan =
            simulation::Plan { seed, copies: arguments.copies, seconds: arguments.seconds, traced: arguments.trace };
        let report = simulation::run(plan)?;
        for line in &report.lines {
            println!("{line}");
        }
        println!("seed {seed}: {:016x}, {} calls, {} requests", report.hash, report.calls, report.requests);
    }
    Ok(())
}
