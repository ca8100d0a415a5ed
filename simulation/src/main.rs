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
    /// Copies of the program; drawn from the seed if not given.
    #[arg(long)]
    copies: Option<usize>,
    /// Virtual seconds with faults and commands.
    #[arg(long, default_value_t = 1800)]
    seconds: u64,
    /// Virtual seconds of quiet then.
    #[arg(long, default_value_t = 900)]
    quiet: u64,
    /// Prints the trace.
    #[arg(long)]
    trace: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    for seed in arguments.seed..arguments.seed + arguments.seeds {
        let plan = simulation::Plan {
            copies: arguments.copies,
            seconds: arguments.seconds,
            quiet: arguments.quiet,
            traced: arguments.trace,
            ..simulation::Plan::of(seed)
        };
        let report = simulation::run(&plan)?;
        for line in &report.lines {
            println!("{line}");
        }
        println!(
            "seed {seed}: {:016x}, {} calls, {} requests, {} faults {:?}",
            report.hash,
            report.calls,
            report.requests,
            report.struck.len(),
            report.exceptions
        );
        for finding in &report.findings {
            println!("  {finding}");
        }
    }
    Ok(())
}
