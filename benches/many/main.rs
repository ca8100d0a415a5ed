//! A fleet at full size: the release binary serves many Clusters of a sandbox in this process, to autoscalers in a
//! process of their own. One Cluster by the same code stands beside it, and processes that serve one Cluster each.
//! Linux only, run by hand:
//!
//! ```console
//! cargo bench --bench fleet                                                             # 1,000 Clusters of 6 Nodes
//! cargo bench --bench fleet -- --clusters 100 --machines 1000
//! cargo bench --bench fleet -- --clusters 20 --processes 3 --turn 1 --turns 1 --rest 1  # some seconds
//! ```
//!
//! It fails when the number of watches grows with that of Clusters, when an answer names anything of another Cluster,
//! or, at full size, when a target is missed, also one of the comparison with 50 processes.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used, clippy::panic)]
// The counts are far below the limits of their types.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

#[path = "../../examples/sandbox/callers.rs"]
#[allow(dead_code, reason = "the demonstration has more of it")]
mod callers;
#[path = "../../examples/sandbox/certificates.rs"]
mod certificates;
mod figures;
mod processes;
mod program;
mod turns;
mod world;

use std::{path::PathBuf, time::Duration};

use clap::Parser;

use self::{
    figures::Figures,
    program::{Program, Served},
    turns::Turns,
    world::World,
};

/// The options of the bench.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Args {
    /// The number of Clusters.
    #[arg(long, default_value_t = 1_000)]
    clusters: usize,
    /// The number of Machines of each.
    #[arg(long, default_value_t = 6)]
    machines: usize,
    /// The number of processes of one Cluster each that a fleet of as many is compared with; 0 for none.
    #[arg(long, default_value_t = 50)]
    processes: usize,
    /// The number of calls that all autoscalers make in a second, if they can.
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// The number of events that are timed.
    #[arg(long, default_value_t = 2_000)]
    events: usize,
    /// The duration of a turn with or without an attack, in seconds.
    #[arg(long, default_value_t = 5)]
    turn: u64,
    /// The number of turns of each.
    #[arg(long, default_value_t = 4)]
    turns: usize,
    /// The time for which the process rests before its memory is read, in seconds.
    #[arg(long, default_value_t = 8)]
    rest: u64,
    /// Play the autoscalers of this folder: the process of its own.
    #[arg(long, hide = true)]
    callers: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if let Some(folder) = &args.callers {
        runtime.block_on(callers::process(folder)).expect("the autoscalers play");
        return;
    }
    let one = measure(&runtime, &Args { clusters: 1, ..args.clone() });
    let all = measure(&runtime, &args);
    figures::print(&args, &one, &all);
    let mut missed = figures::missed(&args, &one, &all);
    if args.processes > 0 {
        missed.extend(processes::compare(&runtime, &args));
    }
    assert!(missed.is_empty(), "{}", missed.join("; "));
}

/// Measures a fleet of this size.
fn measure(runtime: &tokio::runtime::Runtime, args: &Args) -> Figures {
    let world = World::start(runtime, args.clusters, args.machines);
    let program = Program::start(&world, Served::Fleet);
    let ready = world.block_on(program.ready());
    let nodes = world.block_on(program.all_nodes(&world));
    let mut turns = Turns::start(&world, &program, args);
    let (served, plain) = turns.until_served(&program);
    std::thread::sleep(Duration::from_secs(args.rest));
    let (resident, peak) = (program.memory("VmRSS"), program.memory("VmHWM"));
    let watches = world.watches();
    let dead = turns.with(args.turns, |is_on| world.kill_some(is_on));
    let endless = turns.with_endless(&world, args.turns);
    drop(turns);
    let event = world.block_on(program.event(&world, args));
    Figures { ready, nodes, served, resident, peak, watches, plain, dead, endless, event }
}
